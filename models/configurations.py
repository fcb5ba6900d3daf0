"""Small models of many architectures: configurations of Hugging Face classes with random weights, and own modules, each with a batch to train on.

    models() -> {name: Model}                  Model.build() -> (module, inputs): module(*inputs.values()) -> loss; inputs are tensors by name with samples in dimension 0

test/e2e/breadth_table.py compares their training with PyTorch. Nothing is downloaded: every model is created from its configuration.
"""
import contextlib
import dataclasses
import functools
import typing

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, LENGTH, VOCABULARY = 6, 12, 64
CLASSES = 5


@dataclasses.dataclass
class Model:
    kind: str  # language, encoder, vision, audio, encoder-decoder, series, own
    build: typing.Callable
    mixes: str = ""  # why no plan can split its batch; the importer must report this text
    config: str = ""  # configuration class in transformers
    cls: str = ""  # model class


class Called(nn.Module):
    """A transformers model as a function of tensors in order: its own loss, or `loss` of its
    outputs and the last tensor."""

    def __init__(self, model, names, loss=None, **fixed):
        super().__init__()
        self.model, self.names, self.loss, self.fixed = model, names, loss, fixed

    def forward(self, a, b=None, c=None, d=None, e=None):  # not *tensors: exporters need one argument per dynamic axis
        given = dict(zip(self.names, (a, b, c, d, e)))
        target = given.pop("target", None)
        result = self.model(**given, **self.fixed, return_dict=True)
        return result.loss if self.loss is None else self.loss(result, target)


def generator(seed=7):
    return torch.Generator().manual_seed(seed)


def ids(*shape, limit=VOCABULARY, seed=7, low=3):
    return torch.randint(low, limit, shape, generator=generator(seed))


def floats(*shape, seed=9):
    return torch.randn(*shape, generator=generator(seed))


RANDOM = ("dropout", "pdrop", "drop_path", "layerdrop", "drop_rate", "drop_prob", "jitter", "mask_time_prob", "mask_feature_prob")


def quiet(config):
    """Disables random parts: dropout, stochastic depth, router noise, spectrogram masks. Returns
    the configuration."""
    for key, value in random_parts(config).items():
        setattr(config, key, [0.0] * len(value) if isinstance(value, (list, tuple)) else type(value)(0))
    for part in vars(config).values():
        if hasattr(part, "to_dict"):
            quiet(part)
    return config


def random_parts(config):
    """{attribute: value} of the random parts of a configuration."""
    def by_chance(key, value):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value and any(word in key for word in RANDOM)
        return key.startswith("drop_path") and isinstance(value, (list, tuple)) and any(value)
    return {key: value for key, value in vars(config).items() if by_chance(key, value)}


_by_chance = False


@contextlib.contextmanager
def by_chance():
    """Inside, models keep the random parts of their configurations."""
    global _by_chance
    before, _by_chance = _by_chance, True
    try:
        yield
    finally:
        _by_chance = before


def made(class_name, config):
    import transformers

    torch.manual_seed(3)
    module = getattr(transformers, class_name)(config if _by_chance else quiet(config))
    for m in module.modules():
        if hasattr(getattr(m, "config", None), "_experts_implementation"):
            m.config._experts_implementation = "eager"  # each expert computes its own positions
    with torch.no_grad():  # all parameters differ and are nonzero
        numbers = generator(4)
        for p in module.parameters():
            p.add_(torch.empty_like(p).normal_(0.0, 0.02, generator=numbers))
    return module.eval()


def configured(name, **settings):
    import transformers

    return getattr(transformers, name)(**settings)


TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64)
SPECIAL = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def causal(family, cls=None, base=True, fixed=None, **settings):
    def build():
        config = configured(family + "Config", **{**(TEXT if base else {"vocab_size": VOCABULARY}), **SPECIAL, **settings})
        x = ids(ROWS, LENGTH)
        return Called(made(cls or family + "ForCausalLM", config), ["input_ids", "labels"], use_cache=False, **(fixed or {})), {"input_ids": x, "labels": x.clone()}
    return Model("language", build, config=family + "Config", cls=cls or family + "ForCausalLM")


def encoder(family, cls=None, base=True, masked=True, **settings):
    """A masked language model, with a padding mask per sample."""
    def build():
        config = configured(family + "Config", **{**(TEXT if base else {"vocab_size": VOCABULARY}), **SPECIAL, **settings})
        x, labels = ids(ROWS, LENGTH), ids(ROWS, LENGTH, seed=8)
        labels[torch.rand(ROWS, LENGTH, generator=generator(5)) < 0.6] = -100
        mask = (torch.arange(LENGTH)[None] < torch.randint(5, LENGTH + 1, (ROWS, 1), generator=generator(6))).long()
        x = torch.where(mask > 0, x, 0)
        inputs = {"input_ids": x, "attention_mask": mask, "labels": torch.where(mask > 0, labels, -100)}
        if not masked:
            del inputs["attention_mask"]
        return Called(made(cls or family + "ForMaskedLM", config), list(inputs)), inputs
    return Model("encoder", build, config=family + "Config", cls=cls or family + "ForMaskedLM")


def picture(family, cls=None, size=32, channels=3, **settings):
    """An image classifier."""
    def build():
        config = configured(family + "Config", num_labels=CLASSES, **settings)
        config.problem_type = "single_label_classification"
        inputs = {"pixel_values": floats(ROWS, channels, size, size), "labels": ids(ROWS, limit=CLASSES, low=0)}
        return Called(made(cls or family + "ForImageClassification", config), list(inputs)), inputs
    return Model("vision", build, config=family + "Config", cls=cls or family + "ForImageClassification")


def translated(family, cls=None, **settings):
    """Sequence to sequence: ids as input; the model shifts the labels itself."""
    def build():
        small = dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
                     max_position_embeddings=64, decoder_start_token_id=2)
        config = configured(family + "Config", **{**small, **SPECIAL, **settings})
        inputs = {"input_ids": ids(ROWS, LENGTH), "attention_mask": torch.ones(ROWS, LENGTH, dtype=torch.long), "labels": ids(ROWS, 8, seed=8)}
        inputs["attention_mask"][1, 9:] = 0
        return Called(made(cls or family + "ForConditionalGeneration", config), list(inputs), use_cache=False), inputs
    return Model("encoder-decoder", build, config=family + "Config", cls=cls or family + "ForConditionalGeneration")


T5 = dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu")


def squared(key="last_hidden_state"):
    """Mean square of a hidden state, or of the sum of several, against the target, which is
    broadcast."""
    def loss(result, target):
        value = sum(result[k] for k in key.split("+"))
        return F.mse_loss(value, target.reshape(target.shape[0], *[1] * (value.dim() - 1)).expand_as(value))
    return loss


def hidden(kind, family, cls, inputs, key="last_hidden_state", mixes="", fixed=None, **settings):
    """Any model with a squared error of one of its outputs."""
    def build():
        given = {name: make() for name, make in inputs.items()}
        given["target"] = floats(ROWS, seed=11)
        return Called(made(cls, configured(family + "Config", **settings)), list(given), squared(key), **(fixed or {})), given
    return Model(kind, build, mixes, family + "Config", cls)


def sound(family, cls=None, key="input_values", shape=(ROWS, 400), **settings):
    def build():
        config = configured(family + "Config", num_labels=CLASSES, **settings)
        inputs = {key: floats(*shape), "labels": ids(ROWS, limit=CLASSES, low=0)}
        return Called(made(cls or family + "ForSequenceClassification", config), list(inputs)), inputs
    return Model("audio", build, config=family + "Config", cls=cls or family + "ForSequenceClassification")


WAVES = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16, 16), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2),
             num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, mask_feature_prob=0.0, apply_spec_augment=False, classifier_proj_size=16,
             tdnn_dim=(16, 16), tdnn_kernel=(3, 1), tdnn_dilation=(1, 1), xvector_output_dim=16)
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8)


def hub():
    group = dict(num_key_value_heads=2)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
    found = {
        # Decoders.
        "gpt2": causal("GPT2", "GPT2LMHeadModel", False, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        "gpt-neo": causal("GPTNeo", base=False, hidden_size=32, num_layers=2, num_heads=4, intermediate_size=48, max_position_embeddings=64, window_size=5, attention_types=[[["global", "local"], 1]]),
        "gpt-neox": causal("GPTNeoX", rotary_pct=0.5),
        "gpt-j": causal("GPTJ", base=False, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
        "gpt-bigcode": causal("GPTBigCode", base=False, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        "openai-gpt": causal("OpenAIGPT", "OpenAIGPTLMHeadModel", False, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        "codegen": causal("CodeGen", base=False, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
        "opt": causal("OPT", base=False, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=16),
        "bloom": causal("Bloom", base=False, hidden_size=32, n_layer=2, n_head=4),
        "falcon": causal("Falcon", **group, new_decoder_architecture=True, num_kv_heads=2),
        "mpt": causal("Mpt", base=False, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
        "llama": causal("Llama", **group),
        "mistral": causal("Mistral", **group, sliding_window=6),
        "mixtral": causal("Mixtral", **group, num_local_experts=4, num_experts_per_tok=2),
        "qwen2": causal("Qwen2", **group),
        "qwen3": causal("Qwen3", **group, head_dim=8),
        "qwen2-moe": causal("Qwen2Moe", **group, **experts, shared_expert_intermediate_size=24),
        "qwen3-moe": causal("Qwen3Moe", **group, **experts, head_dim=8),
        "gemma": causal("Gemma", **group, head_dim=8),
        "gemma2": causal("Gemma2", **group, head_dim=8, sliding_window=6),
        "gemma3": causal("Gemma3Text", "Gemma3ForCausalLM", **group, head_dim=8, sliding_window=6),
        "phi": causal("Phi", partial_rotary_factor=0.5),
        "phi3": causal("Phi3", **group),
        "stablelm": causal("StableLm", **group, partial_rotary_factor=0.5),
        "starcoder2": causal("Starcoder2", **group),
        "olmo2": causal("Olmo2", **group),
        "olmoe": causal("Olmoe", **group, num_experts=4, num_experts_per_tok=2),
        "granite": causal("Granite", **group),
        "cohere": causal("Cohere", **group),
        "persimmon": causal("Persimmon"),
        "glm": causal("Glm", **group, head_dim=8),
        "nemotron": causal("Nemotron", **group),
        "smollm3": causal("SmolLM3", **group),
        "gpt-oss": causal("GptOss", **group, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
        "deepseek-v3": causal("DeepseekV3", num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=1,
                              q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8),
        "xglm": causal("XGLM", base=False, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48, max_position_embeddings=64),
        "biogpt": causal("BioGpt"),
        "mamba": causal("Mamba", base=False, hidden_size=32, num_hidden_layers=2, state_size=4, time_step_rank=4),
        "rwkv": causal("Rwkv", base=False, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32, intermediate_size=48, context_length=64),
        # Encoders.
        "bert": encoder("Bert"),
        "roberta": encoder("Roberta"),
        "distilbert": encoder("DistilBert", base=False, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64),
        "albert": encoder("Albert", embedding_size=16),
        "electra": encoder("Electra", embedding_size=16),
        "deberta": encoder("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16),
        "deberta-v2": encoder("DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True),
        "mpnet": encoder("MPNet"),
        "convbert": encoder("ConvBert", embedding_size=16, conv_kernel_size=3, head_ratio=2),
        "mobilebert": encoder("MobileBert", embedding_size=16, intra_bottleneck_size=16),
        "squeezebert": encoder("SqueezeBert", embedding_size=32),
        "fnet": encoder("FNet", masked=False),
        "funnel": encoder("Funnel", base=False, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=48),
        "rembert": encoder("RemBert", input_embedding_size=16, output_embedding_size=24),
        "roformer": encoder("RoFormer", embedding_size=16),
        "modernbert": encoder("ModernBert", global_attn_every_n_layers=2, local_attention=6, reference_compile=False),
        "esm": encoder("Esm", mask_token_id=4, position_embedding_type="rotary"),
        "xlnet": hidden("encoder", "XLNet", "XLNetModel", {"input_ids": lambda: ids(ROWS, LENGTH)}, vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=48, fixed={"use_mems": False}),
        "layoutlm": hidden("encoder", "LayoutLM", "LayoutLMModel", {"input_ids": lambda: ids(ROWS, LENGTH), "bbox": lambda: torch.sort(ids(ROWS, LENGTH, 4, limit=30)).values}, **TEXT, max_2d_position_embeddings=64),
        # Images.
        "vit": picture("ViT", **VISION),
        "deit": picture("DeiT", **VISION),
        "beit": picture("Beit", **VISION, use_relative_position_bias=True),
        "swin": picture("Swin", image_size=32, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 4], window_size=4),
        "swinv2": picture("Swinv2", image_size=32, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 4], window_size=4),
        "convnext": picture("ConvNext", hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 2, 1]),
        "convnextv2": picture("ConvNextV2", hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 2, 1]),
        "resnet": picture("ResNet", embedding_size=8, hidden_sizes=[8, 12, 16], depths=[1, 2, 1], layer_type="bottleneck"),
        "regnet": picture("RegNet", embedding_size=8, hidden_sizes=[8, 12, 16], depths=[1, 1, 1], groups_width=4),
        "mobilenet-v1": picture("MobileNetV1", depth_multiplier=0.25, min_depth=8),
        "mobilenet-v2": picture("MobileNetV2", depth_multiplier=0.25, min_depth=8, image_size=32),
        "efficientnet": picture("EfficientNet", image_size=32, width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320),
        "mobilevit": picture("MobileViT", image_size=32, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 8, 12, 16, 16, 16], num_attention_heads=2),
        "poolformer": picture("PoolFormer", hidden_sizes=[8, 8, 12, 12], depths=[1, 1, 1, 1]),
        "segformer": picture("Segformer", hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16),
        "pvt-v2": picture("PvtV2", image_size=32, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], mlp_ratios=[2, 2, 2, 2]),
        "cvt": picture("Cvt", embed_dim=[8, 8, 16], num_heads=[1, 1, 2], depth=[1, 2, 3]),
        "dinov2": picture("Dinov2", **{k: v for k, v in VISION.items() if k != "intermediate_size"}, mlp_ratio=2),
        "bit": picture("Bit", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4),
        "focalnet": picture("FocalNet", image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3]),
        "hiera": picture("Hiera", image_size=[32, 32], embed_dim=8, num_heads=[1, 2], depths=[1, 1],
            patch_stride=[4, 4], patch_kernel=[7, 7], patch_padding=[3, 3], query_stride=[2, 2], masked_unit_size=[4, 4], num_query_pool=1, masked_unit_attention=[True, False]),
        "swiftformer": picture("SwiftFormer", image_size=32, embed_dims=[8, 8, 12, 12], depths=[1, 1, 1, 1]),
        "clip-vision": hidden("vision", "CLIPVision", "CLIPVisionModel", {"pixel_values": lambda: floats(ROWS, 3, 32, 32)}, key="pooler_output", **VISION),
        "clip": hidden("vision", "CLIP", "CLIPModel", {"input_ids": lambda: ids(ROWS, LENGTH), "pixel_values": lambda: floats(ROWS, 3, 32, 32)}, key="text_embeds+image_embeds",
                       text_config={**TEXT, **SPECIAL}, vision_config=VISION, projection_dim=16),
        "dpt": hidden("vision", "DPT", "DPTForDepthEstimation", {"pixel_values": lambda: floats(ROWS, 3, 32, 32)}, key="predicted_depth", **{**VISION, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
                      neck_hidden_sizes=[8, 8, 12, 12], fusion_hidden_size=8, is_hybrid=False, use_batch_norm_in_fusion_residual=False),
        "vilt": hidden("vision", "Vilt", "ViltModel", {"input_ids": lambda: ids(ROWS, LENGTH), "pixel_values": lambda: floats(ROWS, 3, 32, 32)}, **{**VISION, **TEXT}),
        # Audio.
        "wav2vec2": sound("Wav2Vec2", **WAVES),
        "hubert": sound("Hubert", **WAVES),
        "wavlm": sound("WavLM", **WAVES, num_buckets=8, max_bucket_distance=16),
        "unispeech": sound("UniSpeech", **WAVES),
        "sew": sound("SEW", **WAVES, squeeze_factor=2),
        "data2vec-audio": sound("Data2VecAudio", **WAVES),
        "ast": sound("AST", "ASTForAudioClassification", shape=(ROWS, 24, 16), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, patch_size=8, frequency_stride=4, time_stride=4,
                     max_length=24, num_mel_bins=16),
        # Sequence to sequence.
        "bart": translated("Bart"),
        "mbart": translated("MBart"),
        "pegasus": translated("Pegasus"),
        "marian": translated("Marian", "MarianMTModel"),
        "m2m-100": translated("M2M100"),
        "blenderbot": translated("Blenderbot"),
        "prophetnet": translated("ProphetNet", hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4, num_decoder_attention_heads=4, ngram=2),
        "t5": translated("T5", **T5),
        "t5-shallow": translated("T5", **{**T5, "num_layers": 1, "num_decoder_layers": 1}, tie_word_embeddings=True),
        "umt5": translated("UMT5", **T5),
        "longt5": translated("LongT5", **T5, local_radius=4),
        "switch-transformers": translated("SwitchTransformers", **{k: v for k, v in T5.items() if k != "feed_forward_proj"}, num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
    }

    def whisper():
        config = configured("WhisperConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                            decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20, max_target_positions=32, decoder_start_token_id=3, suppress_tokens=None, **SPECIAL)
        inputs = {"input_features": floats(ROWS, 8, 40), "labels": ids(ROWS, 8)}
        return Called(made("WhisperForConditionalGeneration", config), list(inputs), use_cache=False), inputs

    def speech_to_text():
        config = configured("Speech2TextConfig", vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                            decoder_ffn_dim=48, input_feat_per_channel=8, conv_channels=16, max_source_positions=60, max_target_positions=32, decoder_start_token_id=2, **SPECIAL)
        inputs = {"input_features": floats(ROWS, 40, 8), "labels": ids(ROWS, 8)}
        return Called(made("Speech2TextForConditionalGeneration", config), list(inputs), use_cache=False), inputs

    def patch_series(family, cls, **more):
        def build():
            config = configured(family + "Config", num_input_channels=3, context_length=32, patch_length=4, patch_stride=4, d_model=16, prediction_length=8, **more)
            inputs = {"past_values": floats(ROWS, 32, 3), "future_values": floats(ROWS, 8, 3, seed=10)}
            return Called(made(cls, config), list(inputs)), inputs
        return Model("series", build, config=family + "Config", cls=cls)

    def contrastive():
        config = configured("CLIPConfig", text_config={**TEXT, **SPECIAL}, vision_config=VISION, projection_dim=16)
        inputs = {"input_ids": ids(ROWS, LENGTH), "pixel_values": floats(ROWS, 3, 32, 32)}
        return Called(made("CLIPModel", config), list(inputs), return_loss=True), inputs

    found["whisper"] = Model("encoder-decoder", whisper, config="WhisperConfig", cls="WhisperForConditionalGeneration")
    found["speech-to-text"] = Model("encoder-decoder", speech_to_text, config="Speech2TextConfig", cls="Speech2TextForConditionalGeneration")
    found["patchtst"] = patch_series("PatchTST", "PatchTSTForPrediction", num_hidden_layers=2, num_attention_heads=4, ffn_dim=32, loss="mse", norm_type="layernorm")
    found["patchtsmixer"] = patch_series("PatchTSMixer", "PatchTSMixerForPrediction", num_layers=2, loss="mse")
    found["clip-contrastive"] = Model("vision", contrastive, "samples apart")
    return found


@functools.cache
def models():
    from modules import families

    return {**hub(), **{name: Model("own", build) for name, build in families.builders().items()}}
