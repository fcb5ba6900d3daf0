// RUN: zorse-opt %s --zorse-train-pipeline=from=recognized --zorse-print-summary | FileCheck %s
// A LLaMA with grouped queries, rotary positions from constant tables, and labels that the graph computes from the ids.

// Labels are computed in the head, from the ids: values that depend only on inputs are cloned into their users. The rope tables are frozen and shared.
// CHECK: model f64, 6 units, 2 blocks of 2 from unit 1
// CHECK: unit 1 'block 0 attention' class 1 {{.*}} inputs [] in [0] out [1]
// CHECK: unit 2 'block 0 mlp' class 2
// CHECK: unit 3 'block 1 attention' class 1
// CHECK: unit 4 'block 1 mlp' class 2
// CHECK: unit 5 'head' class 3 {{.*}} inputs [0] in [4] out [] loss [0]
// CHECK: group {{.*}} 'block 0 attention + block 1 attention (frozen)' f64 128 elements, frozen, units [1 3]
// CHECK: input 0 'input_ids' i64 [4] role ids in [0, 11), shifted by the graph, units [0 5]
// CHECK-LABEL: zorse.class @head {
// CHECK-LABEL: func.func @forward
// CHECK:         zorse.slice
// CHECK:         zorse.concat
// CHECK:         zorse.cross_entropy

module {
  func.func @model(%input_ids: tensor<?x4xi64> {zorse.input = "input_ids"} loc("input_ids"),
      %p1: tensor<11x8xf64> {zorse.parameter = "embed_tokens.weight", zorse.trainable = true} loc("embed_tokens.weight"),
      %p2: tensor<4x1xf64> {zorse.parameter = "const.cos", zorse.trainable = false} loc("const.cos"),
      %p3: tensor<4x1xf64> {zorse.parameter = "const.sin", zorse.trainable = false} loc("const.sin"),
      %p4: tensor<8xf64> {zorse.parameter = "layers.0.input_layernorm.weight", zorse.trainable = true} loc("layers.0.input_layernorm.weight"),
      %p5: tensor<8x8xf64> {zorse.parameter = "layers.0.self_attn.q_proj.weight", zorse.trainable = true} loc("layers.0.self_attn.q_proj.weight"),
      %p6: tensor<4x8xf64> {zorse.parameter = "layers.0.self_attn.k_proj.weight", zorse.trainable = true} loc("layers.0.self_attn.k_proj.weight"),
      %p7: tensor<4x8xf64> {zorse.parameter = "layers.0.self_attn.v_proj.weight", zorse.trainable = true} loc("layers.0.self_attn.v_proj.weight"),
      %p8: tensor<8x8xf64> {zorse.parameter = "layers.0.self_attn.o_proj.weight", zorse.trainable = true} loc("layers.0.self_attn.o_proj.weight"),
      %p9: tensor<8xf64> {zorse.parameter = "layers.0.post_attention_layernorm.weight", zorse.trainable = true} loc("layers.0.post_attention_layernorm.weight"),
      %p10: tensor<12x8xf64> {zorse.parameter = "layers.0.mlp.gate_proj.weight", zorse.trainable = true} loc("layers.0.mlp.gate_proj.weight"),
      %p11: tensor<12x8xf64> {zorse.parameter = "layers.0.mlp.up_proj.weight", zorse.trainable = true} loc("layers.0.mlp.up_proj.weight"),
      %p12: tensor<8x12xf64> {zorse.parameter = "layers.0.mlp.down_proj.weight", zorse.trainable = true} loc("layers.0.mlp.down_proj.weight"),
      %p13: tensor<8xf64> {zorse.parameter = "layers.1.input_layernorm.weight", zorse.trainable = true} loc("layers.1.input_layernorm.weight"),
      %p14: tensor<8x8xf64> {zorse.parameter = "layers.1.self_attn.q_proj.weight", zorse.trainable = true} loc("layers.1.self_attn.q_proj.weight"),
      %p15: tensor<4x8xf64> {zorse.parameter = "layers.1.self_attn.k_proj.weight", zorse.trainable = true} loc("layers.1.self_attn.k_proj.weight"),
      %p16: tensor<4x8xf64> {zorse.parameter = "layers.1.self_attn.v_proj.weight", zorse.trainable = true} loc("layers.1.self_attn.v_proj.weight"),
      %p17: tensor<8x8xf64> {zorse.parameter = "layers.1.self_attn.o_proj.weight", zorse.trainable = true} loc("layers.1.self_attn.o_proj.weight"),
      %p18: tensor<8xf64> {zorse.parameter = "layers.1.post_attention_layernorm.weight", zorse.trainable = true} loc("layers.1.post_attention_layernorm.weight"),
      %p19: tensor<12x8xf64> {zorse.parameter = "layers.1.mlp.gate_proj.weight", zorse.trainable = true} loc("layers.1.mlp.gate_proj.weight"),
      %p20: tensor<12x8xf64> {zorse.parameter = "layers.1.mlp.up_proj.weight", zorse.trainable = true} loc("layers.1.mlp.up_proj.weight"),
      %p21: tensor<8x12xf64> {zorse.parameter = "layers.1.mlp.down_proj.weight", zorse.trainable = true} loc("layers.1.mlp.down_proj.weight"),
      %p22: tensor<8xf64> {zorse.parameter = "norm.weight", zorse.trainable = true} loc("norm.weight"),
      %p23: tensor<11x8xf64> {zorse.parameter = "lm_head.weight", zorse.trainable = true} loc("lm_head.weight"))
      -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}, tensor<?xf64> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"}) {
    %v1 = zorse.gather %p1, %input_ids : tensor<11x8xf64>, tensor<?x4xi64> -> tensor<?x4x8xf64> loc("embed_tokens")
    %v2 = zorse.rms_norm %v1 weight %p4 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("layers.0.input_layernorm")
    %v3 = zorse.matmul %v2, %p5 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("layers.0.self_attn.q_proj")
    %v4 = zorse.reshape %v3 : tensor<?x4x8xf64> -> tensor<?x4x4x2xf64>
    %v5 = zorse.matmul %v2, %p6 {transpose_b} : tensor<?x4x8xf64>, tensor<4x8xf64> -> tensor<?x4x4xf64> loc("layers.0.self_attn.k_proj")
    %v6 = zorse.reshape %v5 : tensor<?x4x4xf64> -> tensor<?x4x2x2xf64>
    %v7 = zorse.matmul %v2, %p7 {transpose_b} : tensor<?x4x8xf64>, tensor<4x8xf64> -> tensor<?x4x4xf64> loc("layers.0.self_attn.v_proj")
    %v8 = zorse.reshape %v7 : tensor<?x4x4xf64> -> tensor<?x4x2x2xf64>
    %v9 = zorse.rope %v4, %p2, %p3 : (tensor<?x4x4x2xf64>, tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<?x4x4x2xf64>
    %v10 = zorse.rope %v6, %p2, %p3 : (tensor<?x4x2x2xf64>, tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<?x4x2x2xf64>
    %v11 = zorse.attention %v9, %v10, %v8 {causal, scale = 0.7 : f64} : (tensor<?x4x4x2xf64>, tensor<?x4x2x2xf64>, tensor<?x4x2x2xf64>) -> tensor<?x4x4x2xf64> loc("layers.0.self_attn")
    %v12 = zorse.reshape %v11 : tensor<?x4x4x2xf64> -> tensor<?x4x8xf64>
    %v13 = zorse.matmul %v12, %p8 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("layers.0.self_attn.o_proj")
    %v14 = arith.addf %v1, %v13 : tensor<?x4x8xf64> loc("layers.0.add_1")
    %v15 = zorse.rms_norm %v14 weight %p9 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("layers.0.post_attention_layernorm")
    %v16 = zorse.matmul %v15, %p10 {transpose_b} : tensor<?x4x8xf64>, tensor<12x8xf64> -> tensor<?x4x12xf64> loc("layers.0.mlp.gate_proj")
    %v17 = zorse.matmul %v15, %p11 {transpose_b} : tensor<?x4x8xf64>, tensor<12x8xf64> -> tensor<?x4x12xf64> loc("layers.0.mlp.up_proj")
    %v18 = zorse.silu %v16 : tensor<?x4x12xf64>
    %v19 = arith.mulf %v18, %v17 : tensor<?x4x12xf64>
    %v20 = zorse.matmul %v19, %p12 {transpose_b} : tensor<?x4x12xf64>, tensor<8x12xf64> -> tensor<?x4x8xf64> loc("layers.0.mlp.down_proj")
    %v21 = arith.addf %v14, %v20 : tensor<?x4x8xf64> loc("layers.0.add_2")
    %v22 = zorse.rms_norm %v21 weight %p13 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("layers.1.input_layernorm")
    %v23 = zorse.matmul %v22, %p14 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("layers.1.self_attn.q_proj")
    %v24 = zorse.reshape %v23 : tensor<?x4x8xf64> -> tensor<?x4x4x2xf64>
    %v25 = zorse.matmul %v22, %p15 {transpose_b} : tensor<?x4x8xf64>, tensor<4x8xf64> -> tensor<?x4x4xf64> loc("layers.1.self_attn.k_proj")
    %v26 = zorse.reshape %v25 : tensor<?x4x4xf64> -> tensor<?x4x2x2xf64>
    %v27 = zorse.matmul %v22, %p16 {transpose_b} : tensor<?x4x8xf64>, tensor<4x8xf64> -> tensor<?x4x4xf64> loc("layers.1.self_attn.v_proj")
    %v28 = zorse.reshape %v27 : tensor<?x4x4xf64> -> tensor<?x4x2x2xf64>
    %v29 = zorse.rope %v24, %p2, %p3 : (tensor<?x4x4x2xf64>, tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<?x4x4x2xf64>
    %v30 = zorse.rope %v26, %p2, %p3 : (tensor<?x4x2x2xf64>, tensor<4x1xf64>, tensor<4x1xf64>) -> tensor<?x4x2x2xf64>
    %v31 = zorse.attention %v29, %v30, %v28 {causal, scale = 0.7 : f64} : (tensor<?x4x4x2xf64>, tensor<?x4x2x2xf64>, tensor<?x4x2x2xf64>) -> tensor<?x4x4x2xf64> loc("layers.1.self_attn")
    %v32 = zorse.reshape %v31 : tensor<?x4x4x2xf64> -> tensor<?x4x8xf64>
    %v33 = zorse.matmul %v32, %p17 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("layers.1.self_attn.o_proj")
    %v34 = arith.addf %v21, %v33 : tensor<?x4x8xf64> loc("layers.1.add_1")
    %v35 = zorse.rms_norm %v34 weight %p18 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("layers.1.post_attention_layernorm")
    %v36 = zorse.matmul %v35, %p19 {transpose_b} : tensor<?x4x8xf64>, tensor<12x8xf64> -> tensor<?x4x12xf64> loc("layers.1.mlp.gate_proj")
    %v37 = zorse.matmul %v35, %p20 {transpose_b} : tensor<?x4x8xf64>, tensor<12x8xf64> -> tensor<?x4x12xf64> loc("layers.1.mlp.up_proj")
    %v38 = zorse.silu %v36 : tensor<?x4x12xf64>
    %v39 = arith.mulf %v38, %v37 : tensor<?x4x12xf64>
    %v40 = zorse.matmul %v39, %p21 {transpose_b} : tensor<?x4x12xf64>, tensor<8x12xf64> -> tensor<?x4x8xf64> loc("layers.1.mlp.down_proj")
    %v41 = arith.addf %v34, %v40 : tensor<?x4x8xf64> loc("layers.1.add_2")
    %v42 = zorse.rms_norm %v41 weight %p22 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("norm")
    %v43 = zorse.matmul %v42, %p23 {transpose_b} : tensor<?x4x8xf64>, tensor<11x8xf64> -> tensor<?x4x11xf64> loc("lm_head")
    %v44 = zorse.slice %input_ids [0, 1] [?, 3] [1, 1] : tensor<?x4xi64> -> tensor<?x3xi64>
    %v45 = arith.constant dense<-100> : tensor<i64>
    %v46 = zorse.broadcast %v45 dims [] : tensor<i64> -> tensor<?x1xi64>
    %v47 = zorse.concat %v44, %v46 {dim = 1 : i64} : (tensor<?x3xi64>, tensor<?x1xi64>) -> tensor<?x4xi64>
    %v48 = zorse.cross_entropy %v43, %v47 {ignore_index = -100 : i64} : (tensor<?x4x11xf64>, tensor<?x4xi64>) -> tensor<?x4xf64> loc("loss")
    %v49 = zorse.reduce sum %v48 dims [1] : tensor<?x4xf64> -> tensor<?xf64> loc("loss")
    %v50 = arith.constant dense<-100> : tensor<i64>
    %v51 = zorse.broadcast %v50 dims [] : tensor<i64> -> tensor<?x4xi64>
    %v52 = arith.cmpi ne, %v47, %v51 : tensor<?x4xi64>
    %v53 = arith.uitofp %v52 : tensor<?x4xi1> to tensor<?x4xf64>
    %v54 = zorse.reduce sum %v53 dims [1] : tensor<?x4xf64> -> tensor<?xf64>
    return %v49, %v54 : tensor<?xf64>, tensor<?xf64>
  }
}
