"""Small own modules similar to well-known architectures: builders() -> {name: builder of (module,
inputs)}; module(*inputs.values()) -> loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 6


class Residual(nn.Module):
    """Two convolutions with a shortcut (ResNet), normalized over batches or over groups of
    channels."""

    def __init__(self, inputs, outputs, stride, norm):
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([norm(outputs), norm(outputs)])
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.short(x))


class ResNet(nn.Module):
    def __init__(self, norm, frozen=()):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), norm(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Residual(8, 8, 1, norm), Residual(8, 12, 2, norm), Residual(12, 16, 2, norm))
        self.head = nn.Linear(16, 5)
        for name in frozen:
            self.get_submodule(name).requires_grad_(False)

    def forward(self, pixels, labels):
        return F.cross_entropy(self.head(self.layers(self.stem(pixels)).mean((2, 3))), labels)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Depthwise 7 x 7 convolutions, a norm over channels, an inverted bottleneck and a scale per
    layer."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
            self.up, self.down, self.scale = nn.Linear(width, 3 * width), nn.Linear(3 * width, width), nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8))
        self.blocks = nn.Sequential(self.Block(8), ChannelNorm(8), nn.Conv2d(8, 12, 2, 2), self.Block(12))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, pixels, labels):
        return F.cross_entropy(self.head(self.norm(self.blocks(self.stem(pixels)).mean((2, 3)))), labels)


class UNet(nn.Module):
    """A U-Net: pooling, a transposed convolution and interpolation, shortcuts, group norm, and a
    time embedding; predicts noise."""

    def __init__(self):
        super().__init__()
        def twice(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 12))
        self.outer, self.inner, self.deep = twice(2, 8), twice(8, 12), twice(12, 12)
        self.up, self.back, self.last = nn.ConvTranspose2d(12, 12, 2, 2), twice(24, 8), twice(16, 2)

    def forward(self, noisy, time, noise):
        angles = time[:, None] * torch.exp(-torch.arange(4) / 2.0)
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        outer = self.outer(noisy)
        inner = self.inner(F.max_pool2d(outer, 2)) + embedded[:, :, None, None]
        deep = self.up(self.deep(F.avg_pool2d(inner, 2)))
        x = F.interpolate(self.back(torch.cat([deep, inner], 1)), scale_factor=2, mode="bilinear", align_corners=False)
        return F.mse_loss(self.last(torch.cat([x, outer], 1)), noise)


class Lstm(nn.Module):
    """A character-level model: embedding, two recurrent layers, prediction of the next character."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(40, 12), nn.LSTM(12, 16, num_layers=2, batch_first=True), nn.Linear(16, 40)

    def forward(self, ids, labels):
        return F.cross_entropy(self.head(self.lstm(self.embed(ids))[0]).flatten(0, 1), labels.flatten())


class Moe(nn.Module):
    """Two of four experts for every position, a shared expert, and a penalty on large router
    scores."""

    class Layer(nn.Module):
        def __init__(self, width, experts):
            super().__init__()
            self.norm, self.router, self.shared = nn.RMSNorm(width), nn.Linear(width, experts, bias=False), nn.Linear(width, width)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts))

        def forward(self, x):
            h = self.norm(x)
            scores = self.router(h)
            best, which = scores.softmax(-1).topk(2, -1)
            gates = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
            y = sum(gates[..., i:i + 1] * expert(h) for i, expert in enumerate(self.experts))
            return x + y + self.shared(h), scores.logsumexp(-1).square().mean()

    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(40, 16), nn.ModuleList(self.Layer(16, 4) for _ in range(2)), nn.Linear(16, 40)

    def forward(self, ids, labels):
        x, penalty = self.embed(ids), 0
        for layer in self.layers:
            x, large = layer(x)
            penalty = penalty + large
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten()) + 1e-3 * penalty


class Penalised(nn.Module):
    """A loss with a penalty on the weights and a norm of them."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(9, 16), nn.Linear(16, 3)

    def forward(self, x, y):
        error = F.mse_loss(self.out(torch.tanh(self.hidden(x))), y)
        return error + 1e-2 * self.hidden.weight.square().sum() + 1e-2 * self.out.weight.norm()


def builders():
    def made(kind, *arguments, **inputs):
        def build():
            torch.manual_seed(3)
            module = kind(*arguments)
            for m in module.modules():
                if isinstance(m, nn.BatchNorm2d):
                    nn.init.uniform_(m.running_mean, -0.5, 0.5), nn.init.uniform_(m.running_var, 0.5, 2), nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.uniform_(m.bias, -0.5, 0.5)
            return module.eval(), {name: make() for name, make in inputs.items()}
        return build

    pixels, labels = lambda: torch.randn(ROWS, 3, 16, 16), lambda: torch.randint(0, 5, (ROWS,))
    ids = lambda: torch.randint(0, 40, (ROWS, 10))
    groups = lambda channels: nn.GroupNorm(2, channels)
    return {
        "own-resnet": made(ResNet, nn.BatchNorm2d, pixels=pixels, labels=labels),
        "own-resnet-groups": made(ResNet, groups, pixels=pixels, labels=labels),
        "own-resnet-frozen": made(ResNet, groups, ("stem", "layers.0"), pixels=pixels, labels=labels),
        "own-convnext": made(ConvNext, pixels=pixels, labels=labels),
        "own-unet": made(UNet, noisy=lambda: torch.randn(ROWS, 2, 16, 16), time=lambda: torch.rand(ROWS), noise=lambda: torch.randn(ROWS, 2, 16, 16)),
        "own-lstm": made(Lstm, ids=ids, labels=ids),
        "own-moe": made(Moe, ids=ids, labels=ids),
        "own-penalised": made(Penalised, x=lambda: torch.randn(ROWS, 9), y=lambda: torch.randn(ROWS, 3)),
    }
