"""One small model of every family of transformers, with a configuration shrunk from the family's defaults, or the one in configurations.py.

    names() -> [model type]                               first those of configurations.py, then those with a head for language, images and audio; at the end variants and own modules
    variants.variants() -> {name: Model}                  further configurations
    family(name) -> Family                                .build() -> (module, inputs): module(*inputs.values()) -> loss

SIZES shrinks a configuration by the meaning of its attributes; EXTRA contains additional settings of families. Nothing is downloaded.
"""
import dataclasses
import functools
import inspect
import re
import typing

import torch
import torch.nn as nn

import configurations as c
import variants

WIDTH, INNER, HEADS, GROUPS, HEAD, LAYERS, POSITIONS = 32, 48, 4, 2, 8, 2, 64
PIXELS, PATCH, FRAMES, MELS, WAVE = 32, 8, 4, 16, 400

# Small values of integer attributes, by name pattern; the first match is used. Smaller values are
# kept.
SIZES = [
    (r".*vocab_size.*|.*codebook_size|n_vocab|n_words|num_embeddings", c.VOCABULARY),
    (r"type_vocab_size", 2),
    (r".*(sampling_rate|hop_length|frame_rate)", None),
    (r".*num_key_value_heads|num_kv_heads|.*_key_value_attention_heads|num_query_groups|.*n_kv_heads", GROUPS),
    (r".*(num_attention_heads|n_heads?|num_heads|_heads|^heads|num_head)|heads|.*num_.*_heads", HEADS),
    (r"qk_rope_head_dim|rotary_dim", 4),
    (r".*(head_dim|d_kv|kv_channels|d_head|head_size|attention_key_size)|channels_per_head", HEAD),
    (r".*lora_rank|.*_rank|.*low_rank.*", 16),
    (r".*(moe_intermediate_size|moe_ffn_hidden_size|expert_ffn_hidden_size|moe_hidden_size|expert_intermediate_size|expert_dim)", 24),
    (r".*(intermediate_size|intermediate_dim|ffn_dim|d_ff|d_inner|n_inner|mlp_dim|ffn_hidden_size|feedforward_dim|ffn_size|inner_dim|hidden_dim_ffn|feed_forward_dim|mlp_hidden_dim|ff_dim|dim_ff|mlp_hidden_size)", INNER),
    (r"num_experts_per_tok|num_experts_per_token|moe_topk|moe_top_?k|moe_k|num_selected_experts|.*topk_experts", 2),
    (r"n_group|topk_group|num_expert_group|topk_group_size|.*n_shared_experts|num_shared_experts", 1),
    (r".*(num_experts|num_local_experts|n_routed_experts|moe_num_experts|num_routed_experts)", 4),
    (r"first_k_dense_replace", 1),
    (r".*(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|_layers|num_blocks|depth|layers|num_encoder_blocks|n_blocks)", LAYERS),
    (r".*(max_position_embeddings|n_positions|max_seq_len|max_sequence_length|n_ctx|max_.*_positions|context_length|max_seqlen|max_.*_position_embeddings|max_window_size)", POSITIONS),
    (r".*(sliding_window|window_size|attention_window)", 6),
    (r".*(mamba_d_state|state_size|d_state|ssm_state_size)", 4),
    (r".*chunk_size", 4),
    (r"time_step_rank", 4),
    (r".*(temporal_patch_size|tubelet_size)", None),
    (r".*patch_size", PATCH),
    (r".*(image_size|img_size|input_size|crop_size|pretrain_image_size)", PIXELS),
    (r".*num_frames", FRAMES),
    (r".*(num_mel_bins|n_mels|feature_size|input_feat_per_channel|num_mels)", MELS),
    (r".*(embedding_size|word_embed_proj_dim)", WIDTH),
    (r".*(hidden_size|d_model|n_embd|embed_dim|hidden_dim|projection_dim|proj_dim|hidden_channels|projector_dim|embedding_dim|emb_dim|d_latents|lstm_dim|latent_dim|.*_width|width|output_dim|q_dim|attention_hidden_size)|dim", WIDTH),
    (r".*(num_conv_pos_embeddings)", 8),
    (r".*(num_conv_pos_embedding_groups)", 4),
    (r"classifier_proj_size|xvector_output_dim|conv_channels|.*fusion_hidden_size|subsampling_conv_channels|base_channels|stem_channels|stem_hidden_channels|stem_width", 16),
    (r".*(num_queries|num_query_tokens|num_latents|num_image_tokens|image_seq_length|image_seq_len|num_register_tokens)", 4),
]
# Lists: by position from 0.
LISTS = [
    (r".*(num_attention_heads|num_heads|n_heads)", lambda i: min(2 ** (i // 2), 2)),
    (r".*(depths?|num_layers|layer_depths|stage_depths|num_blocks|n_layers|encoder_layers|stage_num_blocks)", lambda i: 1),
    (r".*(hidden_sizes|embed_dims?|hidden_dims|encoder_hidden_sizes|channels|dims|out_channels|embed_dim)", lambda i: 8 * min(i + 1, 4)),
    (r"conv_dim|tdnn_dim", lambda i: 16),
]
# Lists with one number per layer are cut to the number of layers.
WHOLE = (int, float)

# Additional settings of families. set: settings; inputs: tensors to create; fixed: arguments of
# every call; class, kind: override the first match.
BOXES = {"inputs": {"input_ids": lambda: c.ids(c.ROWS, c.LENGTH), "bbox": lambda: torch.sort(c.ids(c.ROWS, c.LENGTH, 4, limit=30)).values}}
SECTIONS = {"set": {"head_dim": HEAD, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0, "mrope_section": [2, 1, 1]}}}
SPECTRUM = {"set": {"max_source_positions": 64}, "inputs": {"input_features": lambda: c.floats(c.ROWS, MELS, 128)}}
SERIES = {"class": None, "kind": "series", "set": dict(prediction_length=4, context_length=8, lags_sequence=[1, 2, 3], num_time_features=2, d_model=16, encoder_layers=2, decoder_layers=2)}
DECODER = {"model_type": "bert", "vocab_size": c.VOCABULARY, **{k: v for k, v in c.TEXT.items() if k != "vocab_size"}}
EXTRA = {
    "encoder-decoder": {"set": dict(encoder=DECODER, decoder={**DECODER, "is_decoder": True, "add_cross_attention": True})},
    "vision-encoder-decoder": {"set": dict(encoder={"model_type": "vit", **c.VISION}, decoder={**DECODER, "is_decoder": True, "add_cross_attention": True}), "kind": "translation",
                               "inputs": {"pixel_values": lambda: c.floats(c.ROWS, 3, PIXELS, PIXELS)}},
    "speecht5": {"set": dict(mask_time_length=2, mask_feature_length=2)},
    "autoformer": {**SERIES, "class": "AutoformerForPrediction"},
    "blip_2_qformer": {"inputs": {"query_embeds": lambda: c.floats(c.ROWS, 4, WIDTH)}},
    "bros": {"set": dict(hidden_size=WIDTH, num_attention_heads=2, dim_bbox_sinusoid_emb_2d=16, dim_bbox_projection=16), **BOXES},
    "dbrx": {"set": dict(d_model=WIDTH, n_heads=4, n_layers=2, attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8), ffn_config=dict(hidden_size=WIDTH, ffn_hidden_size=24, moe_num_experts=4, moe_top_k=2))},
    "deepseek_v2": {"set": dict(num_experts_per_tok=2, n_group=1, topk_group=1)},
    # Its attention takes the maximum of values that are equal for equal tokens, and PyTorch does
    # not define which of them is chosen: no token occurs twice.
    "doge": {"inputs": {"input_ids": lambda: torch.stack([3 + torch.randperm(c.VOCABULARY - 3, generator=c.generator(i))[:c.LENGTH] for i in range(c.ROWS)])}},
    "donut-swin": {"set": dict(patch_size=2, window_size=4, depths=[2, 1], num_heads=[2, 4], embed_dim=8)},
    "dots1": {"set": dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1)},
    "ernie4_5_vl_moe_text": {"set": dict(moe_intermediate_size=[24, 24])},
    "fsmt": {"set": dict(src_vocab_size=c.VOCABULARY, tgt_vocab_size=c.VOCABULARY)},
    "granitemoehybrid": {"set": dict(layer_types=["mamba", "attention"])},
    "hgnet_v2": {"set": dict(stem_channels=[3, 8, 8], stage_in_channels=[8, 16, 16, 24], stage_mid_channels=[8, 8, 8, 8], stage_out_channels=[16, 16, 24, 24], stage_num_blocks=[1, 1, 1, 1],
                             stage_numb_of_layers=[2, 2, 2, 2], hidden_sizes=[16, 16, 24, 24], depths=[1, 1, 1, 1], embedding_size=8)},
    "hunyuan_v1_dense": {"set": dict(head_dim=HEAD)},
    "hunyuan_v1_moe": {"set": dict(head_dim=HEAD)},
    "hunyuan_vl_text": {"set": dict(head_dim=HEAD)},
    "informer": {**SERIES, "class": "InformerForPrediction"},
    "layoutlmv3": {"set": dict(coordinate_size=6, shape_size=4, visual_embed=False), **BOXES},
    "levit": {"set": dict(patch_size=16, image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 2, 4], depths=[1, 1, 1], key_dim=[8, 8, 8])},
    "lfm2_moe": {"set": dict(layer_types=["conv", "full_attention"], num_dense_layers=1)},
    "lilt": {"set": dict(hidden_size=48, num_attention_heads=4), **BOXES},
    "mamba2": {"set": dict(head_dim=16, num_heads=4, n_groups=2, chunk_size=4)},
    "ministral": {"set": dict(head_dim=HEAD)},
    "mobilevitv2": {"set": dict(image_size=64, base_attn_unit_dims=[16, 16, 16], n_attn_blocks=[1, 1, 1], width_multiplier=0.25)},
    "moonshine": {"inputs": {"input_values": lambda: c.floats(c.ROWS, 2000)}},
    "nemotron_h": {"set": dict(n_groups=2, mamba_num_heads=4, mamba_head_dim=8)},
    "pix2struct": {"inputs": {"flattened_patches": lambda: c.floats(c.ROWS, 6, 2 + 3 * 8 * 8)}},
    "pvt": {"set": dict(image_size=64, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], patch_sizes=[4, 2, 2, 2], mlp_ratios=[2, 2, 2, 2])},
    "qwen2_audio_encoder": SPECTRUM,
    "moss_transcribe_diarize_audio": SPECTRUM,
    "voxtral_encoder": SPECTRUM,
    "reformer": {"set": dict(axial_pos_embds_dim=[8, 24], axial_pos_shape=[4, 3], attn_layers=["local", "lsh"], local_attn_chunk_length=4, lsh_attn_chunk_length=4, num_buckets=4, hash_seed=1, is_decoder=True,
                             feed_forward_size=INNER), "class": "ReformerModelWithLMHead", "kind": "causal"},
    "sew-d": {"set": dict(conv_dim=(16, 16, 16), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_feat_extract_layers=3, squeeze_factor=2)},
    "siglip2": {"class": "Siglip2VisionModel", "kind": "outputs"},
    "textnet": {"set": dict(stem_out_channels=8, image_size=[32, 32])},
    "time_series_transformer": {**SERIES, "class": "TimeSeriesTransformerForPrediction"},
    "xlm": {"set": dict(emb_dim=WIDTH)},
    "flaubert": {"set": dict(emb_dim=WIDTH)},
    "xmod": {"set": dict(default_language="en_XX")},
    **{name: SECTIONS for name in ("glm4v_text", "glm4v_moe_text", "glm_ocr_text", "glm46v_text", "glmga_text", "paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text", "glm_image_text",
                                   "cosmos3_edge_text")},
}


class NotBuilt(Exception):
    """No small model of this family can be created; the message contains the reason."""


# The auto mappings in the order of the search for a class, with the kind of inputs.
MAPPINGS = [
    ("SPEECH_SEQ_2_SEQ", "speech"), ("SEQ_TO_SEQ_CAUSAL_LM", "translation"), ("MASKED_LM", "masked"), ("CAUSAL_LM", "causal"), ("IMAGE_CLASSIFICATION", "labels"), ("AUDIO_CLASSIFICATION", "labels"),
    ("VIDEO_CLASSIFICATION", "labels"), ("TIME_SERIES_PREDICTION", "outputs"), ("SEQUENCE_CLASSIFICATION", "labels"), ("CTC", "ctc"), ("MULTIMODAL_LM", "causal"), ("IMAGE_TEXT_TO_TEXT", "causal"),
    ("SEMANTIC_SEGMENTATION", "outputs"), ("DEPTH_ESTIMATION", "outputs"), ("OBJECT_DETECTION", "outputs"), ("", "outputs"), ("BACKBONE", "outputs"), ("PRETRAINING", "outputs"), ("TEXT_TO_WAVEFORM", "outputs"),
    ("TEXT_TO_SPECTROGRAM", "outputs"), ("TEXT_RECOGNITION", "outputs"), ("MASK_GENERATION", "outputs"), ("UNIVERSAL_SEGMENTATION", "outputs"), ("ZERO_SHOT_OBJECT_DETECTION", "outputs"),
]


@dataclasses.dataclass
class Family:
    name: str  #: the model type
    kind: str  #: what it is trained on
    class_name: str  #: of transformers
    build: typing.Callable  #: () -> (module, inputs)
    mixes: str = ""


@functools.cache
def _classes():
    """{model type: (class, kind of inputs)}, in the order of MAPPINGS."""
    from transformers.models.auto import configuration_auto, modeling_auto

    found = {}
    for mapping, kind in MAPPINGS:
        name = f"MODEL_FOR_{mapping}_MAPPING_NAMES" if mapping and mapping != "PRETRAINING" else f"MODEL_{'FOR_PRETRAINING_' if mapping else ''}MAPPING_NAMES"
        for model_type, cls in getattr(modeling_auto, name).items():
            if model_type in configuration_auto.CONFIG_MAPPING_NAMES:
                found.setdefault(model_type, (cls if isinstance(cls, str) else cls[0], kind))
    return found


@functools.cache
def _by_hand():
    """{model type: Model of configurations.py}."""
    import transformers

    found = {}
    for model in c.models().values():
        if model.config:
            found.setdefault(getattr(transformers, model.config).model_type, model)
    return found


@functools.cache
def names():
    from transformers.models.auto import configuration_auto

    order = {kind: i for i, kind in enumerate(dict.fromkeys(kind for _, kind in MAPPINGS))}
    known = _classes()
    return [*sorted((n for n in configuration_auto.CONFIG_MAPPING_NAMES if n in known), key=lambda n: (n not in _by_hand(), order[known[n][1]])), *_others()]


@functools.cache
def _others():
    """Models of configurations.py that are not the default of their type, by their names there."""
    taken = {id(m) for n, m in _by_hand().items() if n in _classes()}
    return {f"{name}*": model for name, model in c.models().items() if id(model) not in taken}


def family(name):
    model = variants.variants().get(name) or _by_hand().get(name) or _others().get(name)
    if model:
        return Family(name, model.kind, model.cls, functools.partial(_built, model.build), model.mixes)
    cls, kind = _classes()[name]
    cls = EXTRA.get(name, {}).get("class", cls)
    return Family(name, kind, cls, functools.partial(_build, name, cls, EXTRA.get(name, {}).get("kind", kind)))


def _built(build):
    try:
        return build()
    except NotImplementedError as problem:  # raised by transformers
        raise NotBuilt(f"{type(problem).__name__}: {' '.join(str(problem).split())[:160]}") from problem


# Configurations


def _default(parameter):
    return parameter.default if parameter.default is not inspect.Parameter.empty else None


def _shrunk_value(name, value):
    """The small value of the attribute `name`, or None to keep it."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        if re.fullmatch(r".*_token_(id|index)|.*_token_ids|.*_id", name):
            return None
        rule = next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None)
        return rule if rule is not None and value > rule else None
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        rule = next((at for pattern, at in LISTS if re.fullmatch(pattern, name)), None)
        if rule is not None:
            return type(value)(rule(i) for i in range(len(value)))
        size = next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None)
        if size is not None and re.fullmatch(r".*(size|dim).*", name):
            return type(value)(min(size, v) for v in value)
    return None


def _token_ids(values, vocabulary):
    """Ids of special tokens within the vocabulary, all different."""
    found, last = {}, vocabulary
    for name, value in values.items():
        if re.fullmatch(r".*_token_(id|index)", name) and isinstance(value, int) and value >= vocabulary:
            last -= 1
            found[name] = last
    return found


def shrunk(cls, depth=0):
    """Settings that make a configuration of class `cls` small."""
    settings = {}
    defaults = {p.name: _default(p) for p in inspect.signature(cls.__init__).parameters.values() if p.name not in ("self", "kwargs", "args")}
    try:
        made = cls()
    except Exception:
        made = None
    values = {name: getattr(made, name, value) if value is None and made is not None and name in ("layer_types", "mlp_layer_types", "layers_block_type") else value for name, value in defaults.items()}
    for name, value in values.items():
        new = _shrunk_value(name, value)
        if new is not None:
            settings[name] = new
    layers = next((settings.get(n, values.get(n)) for n in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") if isinstance(values.get(n), int)), LAYERS)
    for name, value in values.items():  # one kind per layer: use all kinds, in their order
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value) and re.fullmatch(r".*(layer_types|layers_block_type|block_types?|layer_type)", name):
            kinds = list(dict.fromkeys(value))
            settings[name] = [kinds[i % len(kinds)] for i in range(layers)] if len(kinds) <= layers else kinds
            if len(kinds) > layers:
                settings.update({n: len(kinds) for n in ("num_hidden_layers", "n_layer", "num_layers") if n in values})
    if settings.get("vocab_size") or values.get("vocab_size"):
        settings.update(_token_ids(values, settings.get("vocab_size", values["vocab_size"])))
        settings.update({k: v for k, v in dict(pad_token_id=0, bos_token_id=1, eos_token_id=2).items() if k in values})
    if isinstance(values.get("qk_rope_head_dim"), int):  # the rotated part of a head is a separate head
        settings.update({k: v for k, v in dict(qk_rope_head_dim=4, qk_nope_head_dim=HEAD, v_head_dim=HEAD, head_dim=4, qk_head_dim=HEAD + 4).items() if isinstance(values.get(k), int)})
    elif isinstance(values.get("partial_rotary_factor"), float) and settings.get("head_dim"):
        settings["partial_rotary_factor"] = 0.5
    if values.get("num_key_value_heads") and values["num_key_value_heads"] == values.get("num_attention_heads"):
        settings["num_key_value_heads"] = settings.get("num_attention_heads", values["num_attention_heads"])
    for name, sub in (getattr(cls, "sub_configs", None) or {}).items():
        if depth < 3 and inspect.isclass(sub):
            settings[name] = _nested(sub, getattr(made, name, None), depth)
    return settings


def _nested(sub, value, depth):
    from transformers import CONFIG_MAPPING

    kind = type(value) if value is not None else sub
    if kind.__name__ == "AutoConfig":
        return {"model_type": "llama", **shrunk(CONFIG_MAPPING["llama"], depth + 1)}
    model_type = getattr(kind, "model_type", "")
    found = shrunk(kind, depth + 1)
    found.update(EXTRA.get(model_type, {}).get("set", {}))
    return {**found, "model_type": model_type} if model_type else found


def configuration(name):
    """A small configuration of this family."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[name]
    extra = EXTRA.get(name, {})
    settings = {**shrunk(cls), **extra.get("set", {})}
    return cls(**settings)


# Inputs


def _text(config):
    try:
        text = config.get_text_config()
    except (ValueError, NotImplementedError):  # several tokens
        return config
    return text if getattr(text, "vocab_size", None) else config


def _attribute(config, *names):
    """The first of these attributes that is set in the configuration or one of its parts."""
    parts = [config, *[v for v in vars(config).values() if hasattr(v, "to_dict")]]
    for name in names:
        for part in parts:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


def _tokens(config, seed=7, length=c.LENGTH):
    limit = min(getattr(_text(config), "vocab_size", c.VOCABULARY) or c.VOCABULARY, c.VOCABULARY)
    special = [v for k, v in {**vars(config), **vars(_text(config))}.items() if k.endswith(("_token_id", "_token_index")) and isinstance(v, int)]
    limit = min([limit] + [v for v in special if v > 4])  # exclude image placeholders
    return c.ids(c.ROWS, length, limit=max(limit, 8), seed=seed)


def _picture(config):
    size = _attribute(config, "image_size", "img_size", "input_size") or PIXELS
    height, width = (size if isinstance(size, (list, tuple)) else (size, size))[:2]
    return c.floats(c.ROWS, _attribute(config, "num_channels", "in_channels", "in_chans") or 3, height, width)


def _main_input(name, model, config):
    if name in ("input_ids", "decoder_input_ids"):
        return _tokens(config)
    if name == "pixel_values":
        frames = _attribute(config, "num_frames") if getattr(type(model), "__module__", "").endswith(("timesformer", "videomae", "vivit")) else None
        x = _picture(config)
        return x if not frames else torch.stack([_picture(config) * (1 + i / 8) for i in range(frames)], 1)
    if name == "pixel_values_videos":
        return torch.stack([_picture(config) * (1 + i / 8) for i in range(_attribute(config, "frames_per_clip", "num_frames") or 2)], 1)
    if name == "input_values":
        return c.floats(c.ROWS, *( (1,) if _attribute(config, "audio_channels") else ()), WAVE)
    if name in ("input_features", "audio_values"):
        return c.floats(c.ROWS, 40, _attribute(config, "feature_projection_input_dim", "num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "n_mels") or MELS)
    raise NotBuilt(f"its first input, {name}, is not among those that models/hub_families.py makes")


class Outputs(nn.Module):
    """A transformers model with the mean square of its outputs against a target per sample as its
    loss."""

    def __init__(self, model, names, keys, **fixed):
        super().__init__()
        self.model, self.names, self.keys, self.fixed = model, names, keys, fixed

    def forward(self, a, b=None, c=None, d=None, e=None):
        given = dict(zip(self.names, (a, b, c, d, e)))
        target = given.pop("target")
        result = self.model(**given, **self.fixed, return_dict=True)
        loss = 0
        for key in self.keys:
            y = result[key][-1] if isinstance(result[key], (list, tuple)) else result[key]
            loss = loss + (y - target.reshape(-1, *[1] * (y.dim() - 1))).square().mean()
        return loss


def _fixed(model):
    known = inspect.signature(model.forward).parameters
    return {"use_cache": False} if "use_cache" in known else {}


def _output_keys(model, inputs, fixed):
    """Names of the model's float outputs with a value per sample."""
    with torch.no_grad():
        result = model(**inputs, **fixed, return_dict=True)
    if not hasattr(result, "items"):
        raise NotBuilt("its outputs have no names")
    last = {k: v[-1] if isinstance(v, (list, tuple)) and v else v for k, v in result.items()}
    keys = [k for k, v in last.items() if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim() and len(v) == c.ROWS and "loss" not in k]
    if not keys:
        raise NotBuilt("it has no float outputs per sample")
    best = [k for k in keys if k in ("last_hidden_state", "logits", "pred_boxes", "predicted_depth", "prediction_outputs", "text_embeds", "image_embeds")]
    return best or keys[:1]


def _build(name, class_name, kind):
    try:
        import transformers

        config = configuration(name)
        wanted = getattr(getattr(transformers, class_name), "config_class", None)
        if inspect.isclass(wanted) and not isinstance(config, wanted) and isinstance(_text(config), wanted):
            config = _text(config)
        for key, value in dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2).items():
            if getattr(config, key, None) is None and (key != "decoder_start_token_id" or kind in ("translation", "speech") or getattr(config, "is_encoder_decoder", False)):
                setattr(config, key, value)
        for part in (config, _text(config)):
            part.num_labels = c.CLASSES if kind == "labels" else part.num_labels
        if kind == "labels":
            config.problem_type = "single_label_classification"
        model = c.made(class_name, config)
    except NotBuilt:
        raise
    except Exception as problem:
        raise NotBuilt(f"{type(problem).__name__}: {' '.join(str(problem).split())[:160]}") from problem
    if sum(p.numel() for p in model.parameters()) > 5_000_000:
        raise NotBuilt(f"its smallest configuration here has {sum(p.numel() for p in model.parameters()):,} parameters")
    if not any(p.requires_grad for p in model.parameters()):
        raise NotBuilt("it has no parameters to train")
    try:
        try:
            module, inputs = _with_inputs(name, model, config, kind)
            loss = module(*inputs.values())
        except (ValueError, RuntimeError):
            if kind not in ("translation", "speech"):
                raise
            module, inputs = _with_inputs(name, model, config, "causal")  # a decoder of an encoder-decoder model: the labels are the ids
            loss = module(*inputs.values())
    except NotBuilt:
        raise
    except Exception as problem:
        raise NotBuilt(f"forward: {type(problem).__name__}: {' '.join(str(problem).split())[:160]}") from problem
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad or not torch.isfinite(loss).all():
        raise NotBuilt("its loss is not finite or does not depend on parameters")
    return module, inputs


def _with_inputs(name, model, config, kind):
    known = inspect.signature(model.forward).parameters
    fixed = {**_fixed(model), **EXTRA.get(name, {}).get("fixed", {})}
    if kind == "series":
        return _series(model)
    first = next(iter(EXTRA.get(name, {}).get("inputs", {})), model.main_input_name)
    if kind == "causal" and "input_ids" in known:
        first = "input_ids"  # multimodal models: text only
    more = {key: make() for key, make in EXTRA.get(name, {}).get("inputs", {}).items()}
    inputs = {} if first in more else {first: _main_input(first, model, config)}
    inputs.update(more)
    if kind == "outputs" or "labels" not in known:
        names_ = inspect.signature(model.forward).parameters
        for other, make in (("decoder_input_ids", lambda: _tokens(config, 8, 8)), ("input_ids", lambda: _tokens(config)), ("pixel_values", lambda: _picture(config))):
            if other in names_ and other not in inputs and (names_[other].default is inspect.Parameter.empty or _needs(model, inputs, fixed)):
                inputs[other] = make()
        keys = _output_keys(model, inputs, fixed)
        inputs["target"] = c.floats(c.ROWS, seed=11)
        return Outputs(model, list(inputs), keys, **fixed), inputs
    if kind in ("causal", "translation") and "pixel_values" in known and "pixel_values" not in inputs and _needs(model, {**inputs, "labels": inputs[first]}, fixed):
        inputs["pixel_values"] = _picture(config)
    if kind == "causal":
        inputs["labels"] = inputs[first].clone()
    elif kind == "masked":
        labels = _tokens(config, 8)
        inputs["labels"] = torch.where(torch.rand(labels.shape, generator=c.generator(5)) < 0.6, -100, labels)
    elif kind in ("translation", "speech"):
        inputs["labels"] = _tokens(config, 8, 8)
    elif kind == "ctc":
        inputs["labels"] = c.ids(c.ROWS, 3, limit=8, low=1)
    else:
        inputs["labels"] = c.ids(c.ROWS, limit=c.CLASSES, low=0)
    return c.Called(model, list(inputs), **fixed), inputs


def _series(model):
    """Values of 8 time steps and of the 4 following ones, with two time features each."""
    past = 8 + max(model.config.lags_sequence)
    inputs = {"past_values": c.floats(c.ROWS, past), "past_time_features": c.floats(c.ROWS, past, 2, seed=5), "past_observed_mask": torch.ones(c.ROWS, past),
              "future_values": c.floats(c.ROWS, 4, seed=10), "future_time_features": c.floats(c.ROWS, 4, 2, seed=6)}
    return c.Called(model, list(inputs)), inputs


def _needs(model, inputs, fixed):
    """Whether the model fails with only these inputs."""
    try:
        with torch.no_grad():
            model(**inputs, **fixed)
        return False
    except Exception:
        return True
