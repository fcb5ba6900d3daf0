"""Parameters in a loss: penalties, learned weights of terms, temperatures."""
from losses.forms import CLOSING, EXACT, forms

forms("parameters", EXACT,
      l2_penalty="flat(l, y) + 2**-7 * s.body.head.weight.pow(2).sum()",
      l1_penalty="flat(l, y) + 2**-10 * s.body.head.weight.abs().sum()",
      l2_all="flat(l, y) + 2**-10 * sum(k.pow(2).sum() for k in s.body.parameters())",
      l2_mean="flat(l, y) + 2**-7 * s.body.first.weight.pow(2).mean()",
      l2_norm="flat(l, y) + 2**-7 * s.body.head.weight.norm()",
      l2_over_B="flat(l, y) + s.body.head.weight.pow(2).sum() / l.shape[0]",
      l2_over_2B="flat(l, y) + 0.125 * s.body.head.weight.pow(2).sum() / (2 * l.shape[0])",
      l2_times_B="flat(l, y) + 2**-10 * s.body.head.weight.pow(2).sum() * l.shape[0]",
      l2_over_valid="flat(l, y) + s.body.head.weight.pow(2).sum() / valid(y)",
      l2_summed_then_over_B="(total(l, y) + s.body.head.weight.pow(2).sum()) / l.shape[0]",
      group_lasso="flat(l, y) + 2**-7 * s.body.first.weight.pow(2).sum(0).sqrt().sum()",
      orthogonal="k = s.body.second.weight; flat(l, y) + 2**-7 * ((k @ k.T - torch.eye(6)) ** 2).sum()",
      towards_frozen="flat(l, y) + 2**-7 * (s.other.weight - s.frozen.weight).pow(2).sum()",
      uncertainty="flat(l, y) * torch.exp(-s.a) + s.a",
      uncertainty_sum="total(l, y) / (2 * l.shape[0]) * torch.exp(-s.a) + s.a",
      two_uncertainties="flat(l, y) * torch.exp(-s.a) + F.mse_loss(l, q) * torch.exp(-s.b) + s.a + s.b",
      uncertainty_squares="flat(l, y) / (2 * s.a ** 2) + F.mse_loss(l, q) / (2 * s.b ** 2) + torch.log(s.a ** 2) + torch.log(s.b ** 2)",
      temperature="flat(l * torch.exp(s.a), y)",
      temperature_of_tokens="(each(l, y) * torch.exp(s.a)).sum() / valid(y)",
      learned_mix="torch.sigmoid(s.a) * flat(l, y) + (1 - torch.sigmoid(s.a)) * F.mse_loss(l, q)",
      learned_mix_softmax="k = torch.softmax(s.k, 0); k[0] * flat(l, y) + k[1] * F.mse_loss(l, q) + k[2] * l.abs().mean()",
      weight_times_loss="flat(l, y) * (1 + s.body.head.weight.pow(2).mean())",
      class_gains="-(q * logp(l) * s.k.exp()).sum() / (l.shape[0] * T)",
      scale_over_B="square(l, q) * s.a / (3 * l.shape[0])")

forms("parameters", CLOSING,
      learned_class_weights="k = s.k.exp()[y.clamp(min=0)]; (each(l, y.clamp(min=0)) * k).sum() / k.sum()",
      learned_sample_weights="k = torch.sigmoid(s.a * r); (each(l, y) * k).sum() / k.sum()")
