"""Losses that combine samples: functions of sums over samples, pairs of samples, selections and sorts. All samples
of a step become one group, unless they combine only inputs.
"""
from losses.forms import CLOSING, EXACT, REFUSED, forms

forms("functions of sums", CLOSING,
      rmse="torch.sqrt(F.mse_loss(l, q))",
      perplexity="torch.exp(flat(l, y))",
      squared_mean="flat(l, y) ** 2",
      log_of_mean="torch.log(F.mse_loss(l, q) + 2**-10)",
      ratio_of_means="flat(l, y) / F.mse_loss(l, q)",
      product_of_means="flat(l, y) * F.mse_loss(l, q)",
      max_of_means="torch.maximum(flat(l, y), F.mse_loss(l, q))",
      clamped_mean="flat(l, y).clamp(max=10)",
      flooded="(flat(l, y) - 0.5).abs() + 0.5",
      norm_of_batch="(l - q).norm()",
      dice="a = l.sigmoid(); 1 - (2 * (a * q).sum() + 1) / (a.sum() + q.sum() + 1)",
      dice_by_class="a = l.sigmoid(); (1 - (2 * (a * q).sum((0, 1)) + 1) / (a.sum((0, 1)) + q.sum((0, 1)) + 1)).mean()",
      tversky="a = l.sigmoid(); 1 - (a * q).sum() / ((a * q).sum() + 0.75 * (a * (1 - q)).sum() + 0.25 * ((1 - a) * q).sum() + 2**-20)",
      soft_iou="a = l.sigmoid(); 1 - (a * q).sum() / (a + q - a * q).sum()",
      balance="g = l.softmax(-1); f = (g >= g.max(-1, keepdim=True).values).double(); "
              "flat(l, y) + 0.125 * (g.mean((0, 1)) * f.mean((0, 1))).sum() * C",
      entropy_of_mean="g = l.softmax(-1).mean((0, 1)); flat(l, y) + 0.125 * (g * g.log()).sum()",
      cv_squared="g = l.softmax(-1).sum((0, 1)); flat(l, y) + 2**-7 * g.var() / g.mean() ** 2",
      explained="a = l[..., 0]; ((a - r) ** 2).sum() / ((r - r.mean()) ** 2).sum() * (1 + a.mean())",
      barlow="k = p.T @ v / p.shape[0]; ((k - torch.eye(5)) ** 2).sum()",
      weighted_by_model="k = l[..., 0].sigmoid(); (each(l, y) * k).sum() / k.sum()",
      self_normed="square(l, q) / (l ** 2).sum()",
      snr="10 * torch.log10(square(l, q) / (q ** 2).sum())",
      scaled_by_detached="flat(l, y) / F.mse_loss(l, q).detach()",
      mean_loss_weight="flat(l, y) * (1 + F.mse_loss(l, q))")

forms("pairs of samples", CLOSING,
      pearson="a = l[..., 0] - l[..., 0].mean(); b = r - r.mean(); 1 - (a * b).sum() / ((a ** 2).sum() * (b ** 2).sum()).sqrt()",
      variance="F.mse_loss(p, v) + F.relu(1 - (p.var(0) + 2**-13).sqrt()).mean()",
      centred_features="((p - p.mean(0)) * (v - v.mean(0))).sum() / p.shape[0]",
      covariance="k = p - p.mean(0); ((k.T @ k) / (p.shape[0] - 1)).pow(2).sum()",
      clip="k = unit(p) @ unit(v).T * s.a.exp(); n = torch.arange(k.shape[0]); (F.cross_entropy(k, n) + F.cross_entropy(k.T, n)) / 2",
      siglip="k = unit(p) @ unit(v).T * s.a.exp() + s.b; -F.logsigmoid((2 * torch.eye(k.shape[0]) - 1) * k).sum() / k.shape[0]",
      info_nce="F.cross_entropy(unit(p) @ unit(v).T / 0.125, torch.arange(p.shape[0]))",
      supervised_contrast="k = unit(p) @ unit(p).T / 0.125; e = (c[:, None] == c[None]).double(); -(logp(k) * e).sum() / e.sum()",
      batch_triplet="F.relu((p[:, None] - v[None]).pow(2).sum(-1) + 0.25 - (p - v).pow(2).sum(-1)[:, None]).mean()",
      in_batch_negatives="F.relu(1 - (p * v).sum(1) + (p * v.roll(1, 0)).sum(1)).mean()",
      centre="((p - p.mean(0)) ** 2).sum(1).mean()",
      batch_norm_by_hand="flat((l - l.mean((0, 1))) / (l.var((0, 1), unbiased=False) + 2**-20).sqrt(), y)",
      batch_softmax="(each(l, y) * F.softmax(l[..., 0].mean(1), 0)[:, None]).sum()",
      hardest="each(l, y).mean(1).max()",
      top_two="each(l, y).mean(1).topk(2).values.mean()",
      sorted_loss="(each(l, y).flatten().sort().values * 0.5).sum()",
      mixup_logits="flat(0.5 * l + 0.5 * l.flip(0), y)",
      cumulative="each(l, y).cumsum(0).mean()",
      softmax_of_losses="torch.logsumexp(each(l, y).mean(1), 0)",
      flip_logits="flat(l + 0.125 * l.flip(0), y)",
      first_logits="flat(l + 0.125 * l[:1], y)",
      roll_logits="flat(l + 0.125 * l.roll(1, 0), y)",
      half_batch="flat(l[:l.shape[0] // 2], y[:l.shape[0] // 2])",
      upper_half="each(l, y)[l.shape[0] // 2:].sum() / l.shape[0]",
      moving_mean="flat(l - l.mean(0), y)",
      preference_of_halves="h = p.shape[0] // 2; -F.logsigmoid(0.125 * (p[:h].sum(1) - p[p.shape[0] - h:].sum(1))).mean()",
      sliced_by_B="n = min(l.shape[0], 2); F.cross_entropy(l[:, :n].flatten(0, 1), y[:, :n].flatten())",
      similarity_of_rows="k = p @ p.T; g = v @ v.T; ((k - g) ** 2).mean()",
      first_sample="each(l, y)[0].sum() + 0 * l.sum()")

forms("forward", CLOSING, x_rolled="x + x.roll(1, 0)", hidden_mean="h = s.body.first(x); x + h.mean(0)[:, :4]")

forms("inputs that meet", EXACT,
      two_views="k = s.body(torch.cat([x, u], 0)); F.mse_loss(k[:x.shape[0]], k[x.shape[0]:])")

# PyTorch's exporter fixes the number of samples.
forms("inputs that meet", REFUSED, two_views_chunked="a, b = s.body(torch.cat([x, u], 0)).chunk(2, 0); F.mse_loss(a, b)")

forms("forward", EXACT,
      x_cat_twice="k = torch.cat([x, x * 0.5], 0); (k[:k.shape[0] // 2] + k[k.shape[0] // 2:]) / 2")

# A sample that reads inputs of other samples, by position or in order: could be exact before the step in principle, but
# a program loads only the inputs of its samples. Like activations, they need a group of samples that are combined.
forms("inputs that meet", CLOSING,
      mixup_inputs="flat(s.body(0.75 * x + 0.25 * x.flip(0)), y)",
      ranks="((l[..., 0].mean(1) - r.mean(1).argsort(0).to(l.dtype)) ** 2).mean()")

forms("forward", CLOSING, x_flipped="x + x.flip(0)")

# The index of a sample, and the first sample.
forms("inputs that meet", EXACT,
      alternate="(each(l, y) * (torch.arange(l.shape[0]) % 2)[:, None]).sum() / l.shape[0]",
      numbered="(each(l, y).mean(1) * torch.ones(l.shape[0]).cumsum(0)).sum() / l.shape[0]")

forms("forward", EXACT,
      x_numbered="x + 2**-7 * torch.arange(x.shape[0])[:, None, None].to(x.dtype)",
      x_plus_first="x + x[:1]")
