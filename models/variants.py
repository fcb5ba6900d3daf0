"""Sixty further configurations of transformers: settings of known checkpoints that change the graph, other heads, other activations.

    variants() -> {name: Model}, as configurations.models()

`transformers_families.py --variants` trains each on one device and under random plans, and compares with PyTorch.
"""
import functools


import configurations as c
from configurations import LENGTH, ROWS, T5, TEXT, VISION, VOCABULARY, WAVES, Model, causal, encoder, hidden, picture, sound, translated

GROUPS = dict(num_key_value_heads=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
GPT = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **more}}


def labeled(family, cls, rows_of_labels=False, classes=c.CLASSES, base=True, **settings):
    """A classifier of sequences, or of their tokens."""
    def build():
        config = c.configured(family + "Config", **{**(TEXT if base else {"vocab_size": VOCABULARY}), **c.SPECIAL, "num_labels": classes, **settings})
        config.problem_type = None if rows_of_labels else "single_label_classification"
        shape = (ROWS, LENGTH) if rows_of_labels else (ROWS,)
        inputs = {"input_ids": c.ids(ROWS, LENGTH), "labels": c.ids(*shape, limit=classes, low=0)}
        return c.Called(c.made(family + cls, config), list(inputs)), inputs
    return Model("encoder", build, config=family + "Config", cls=family + cls)


def questions(family, **settings):
    """Begin and end of an answer."""
    def build():
        config = c.configured(family + "Config", **{**TEXT, **c.SPECIAL, **settings})
        inputs = {"input_ids": c.ids(ROWS, LENGTH), "start_positions": c.ids(ROWS, limit=LENGTH, low=0), "end_positions": c.ids(ROWS, limit=LENGTH, low=0, seed=8)}
        return c.Called(c.made(family + "ForQuestionAnswering", config), list(inputs)), inputs
    return Model("encoder", build, config=family + "Config", cls=family + "ForQuestionAnswering")


def choices(family, **settings):
    """One of four answers."""
    def build():
        config = c.configured(family + "Config", **{**TEXT, **c.SPECIAL, **settings})
        inputs = {"input_ids": c.ids(ROWS, 4, LENGTH), "labels": c.ids(ROWS, limit=4, low=0)}
        return c.Called(c.made(family + "ForMultipleChoice", config), list(inputs)), inputs
    return Model("encoder", build, config=family + "Config", cls=family + "ForMultipleChoice")


def segmented(family, size=32, classes=c.CLASSES, **settings):
    """A class for every pixel."""
    def build():
        config = c.configured(family + "Config", num_labels=classes, **settings)
        inputs = {"pixel_values": c.floats(ROWS, 3, size, size), "labels": c.ids(ROWS, size, size, limit=classes, low=0)}
        return c.Called(c.made(family + "ForSemanticSegmentation", config), list(inputs)), inputs
    return Model("vision", build, config=family + "Config", cls=family + "ForSemanticSegmentation")


def _decoders():
    return {
        "llama, one key head, tied": causal("Llama", num_key_value_heads=1, tie_word_embeddings=True),
        "llama, biases": causal("Llama", **GROUPS, attention_bias=True, mlp_bias=True),
        "llama, linear rope": causal("Llama", **rope("linear", factor=4.0)),
        "llama 3.1 rope": causal("Llama", **GROUPS, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)),
        "qwen2, yarn": causal("Qwen2", **GROUPS, **rope("yarn", factor=4.0, original_max_position_embeddings=16)),
        "qwen2, sliding window": causal("Qwen2", **GROUPS, use_sliding_window=True, sliding_window=5, max_window_layers=1, layer_types=["full_attention", "sliding_attention"]),
        "qwen3, wide heads": causal("Qwen3", **GROUPS, head_dim=24, tie_word_embeddings=True),
        "llama, relu": causal("Llama", hidden_act="relu", head_dim=16),
        "mistral, no window": causal("Mistral", **GROUPS, sliding_window=None, head_dim=16),
        "mixtral, one expert": causal("Mixtral", **GROUPS, num_local_experts=4, num_experts_per_tok=1),
        "mixtral, balanced": causal("Mixtral", **GROUPS, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.02),
        "qwen3-moe, dense layer": causal("Qwen3Moe", **GROUPS, **EXPERTS, head_dim=8, mlp_only_layers=[0], norm_topk_prob=True),
        "qwen2-moe, normalized": causal("Qwen2Moe", **GROUPS, **EXPERTS, shared_expert_intermediate_size=16, norm_topk_prob=True),
        "gemma2, caps": causal("Gemma2", **GROUPS, head_dim=8, sliding_window=4, attn_logit_softcapping=20.0, final_logit_softcapping=10.0, query_pre_attn_scalar=16),
        "gemma3, two scales": causal("Gemma3Text", "Gemma3ForCausalLM", **GROUPS, head_dim=16, sliding_window=4, num_hidden_layers=4, sliding_window_pattern=2),
        "phi, key norms": causal("Phi", partial_rotary_factor=0.5, qk_layernorm=True, **GROUPS),
        "stablelm, parallel": causal("StableLm", **GROUPS, partial_rotary_factor=0.25, use_parallel_residual=True, qk_layernorm=True),
        "gpt-neox, serial": causal("GPTNeoX", rotary_pct=1.0, use_parallel_residual=False, attention_bias=False),
        "opt, norms at the end": causal("OPT", base=False, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=16, do_layer_norm_before=False),
        "falcon, alibi": causal("Falcon", alibi=True, parallel_attn=False, bias=True, new_decoder_architecture=False, multi_query=False),
        "falcon, one key head": causal("Falcon", alibi=False, parallel_attn=True, new_decoder_architecture=False, multi_query=True),
        "gpt2, scaled by layer": causal("GPT2", "GPT2LMHeadModel", False, **GPT, scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True, activation_function="relu", tie_word_embeddings=False),
        "gpt-bigcode, many key heads": causal("GPTBigCode", base=False, **GPT, multi_query=False),
        "starcoder2, window": causal("Starcoder2", **GROUPS, sliding_window=4, use_bias=False),
        "cohere, key norms": causal("Cohere", **GROUPS, use_qk_norm=True, logit_scale=0.25),
        "cohere2": causal("Cohere2", **GROUPS, sliding_window=4, head_dim=8),
        "olmo, clipped": causal("Olmo", **GROUPS, clip_qkv=0.5),
        "granite, multipliers": causal("Granite", **GROUPS, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.1, logits_scaling=4.0),
        "glm4": causal("Glm4", **GROUPS, head_dim=8, partial_rotary_factor=0.5),
        "phi3, long rope": causal("Phi3", **GROUPS, **rope("longrope", short_factor=[1.0] * 4, long_factor=[2.0, 3.0, 4.0, 5.0], original_max_position_embeddings=32)),
    }


def _encoders():
    return {
        "bert, three segments, relu": encoder("Bert", hidden_act="relu", type_vocab_size=3),
        "bert, pairs": labeled("Bert", "ForSequenceClassification"),
        "roberta, tokens": labeled("Roberta", "ForTokenClassification", rows_of_labels=True),
        "distilbert, sequences": labeled("DistilBert", "ForSequenceClassification", base=False, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64),
        "albert, two groups": encoder("Albert", embedding_size=16, num_hidden_groups=2, inner_group_num=2),
        "electra, tokens": labeled("Electra", "ForTokenClassification", rows_of_labels=True, embedding_size=32),
        "bert, answers": questions("Bert"),
        "roberta, choices": choices("Roberta"),
        "deberta-v2, sequences": labeled("DebertaV2", "ForSequenceClassification", relative_attention=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_buckets=4, pooler_hidden_size=32),
        "gpt2, sequences": labeled("GPT2", "ForSequenceClassification", base=False, **GPT),
        "llama, sequences": labeled("Llama", "ForSequenceClassification", **GROUPS),
        "modernbert, tokens": labeled("ModernBert", "ForTokenClassification", rows_of_labels=True, global_attn_every_n_layers=1, reference_compile=False),
    }


def _pictures():
    return {
        "vit, no query bias": picture("ViT", **VISION, qkv_bias=False, hidden_act="relu"),
        "vit, rectangles": picture("ViT", **{**VISION, "patch_size": 4, "num_hidden_layers": 3}),
        "dinov2, gated": picture("Dinov2", **{k: v for k, v in VISION.items() if k != "intermediate_size"}, mlp_ratio=2, use_swiglu_ffn=True),
        "resnet, basic blocks": picture("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[2, 1], layer_type="basic", hidden_act="gelu"),
        "beit, shared bias": picture("Beit", **VISION, use_shared_relative_position_bias=True, use_mean_pooling=False),
        "segformer, pixels": segmented("Segformer", hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16),
        "convnext, one scale": picture("ConvNext", hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], layer_scale_init_value=0.0),
        "siglip": picture("Siglip", vision_config={**VISION}),
        "clip, wide text": hidden("vision", "CLIP", "CLIPModel", {"input_ids": lambda: c.ids(ROWS, LENGTH), "pixel_values": lambda: c.floats(ROWS, 3, 32, 32)}, key="text_embeds+image_embeds",
                                  text_config={**TEXT, **c.SPECIAL, "hidden_size": 48, "hidden_act": "gelu"}, vision_config=VISION, projection_dim=24),
    }


def _others():
    plain = {k: v for k, v in T5.items() if k != "feed_forward_proj"}
    return {
        "t5, relu, untied": translated("T5", **plain, feed_forward_proj="relu", tie_word_embeddings=False),
        "mt5": translated("MT5", **T5),
        "bart, scaled embeddings": translated("Bart", scale_embedding=True, activation_function="relu"),
        "marian, static positions": translated("Marian", "MarianMTModel", static_position_embeddings=True, share_encoder_decoder_embeddings=True),
        "plbart": translated("PLBart"),
        "bigbird-pegasus": translated("BigBirdPegasus", attention_type="original_full"),
        "wav2vec2, stable norms": sound("Wav2Vec2", **WAVES, do_stable_layer_norm=True, feat_extract_norm="layer"),
        "wav2vec2-conformer": sound("Wav2Vec2Conformer", **WAVES, position_embeddings_type="rotary", conv_depthwise_kernel_size=3),
        "hubert, weighted layers": sound("Hubert", **WAVES, use_weighted_layer_sum=True),
    }


@functools.cache
def variants():
    found = {**_decoders(), **_encoders(), **_pictures(), **_others()}
    assert len(found) == 60
    return found
