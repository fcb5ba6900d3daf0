// RUN: zorse-opt %s --zorse-train-pipeline=from=recognized --zorse-print-summary | FileCheck %s
// A GPT with learned positions, fused q, k, v, dropout and tied embeddings; one of its residual sums has swapped operands.

// Half-blocks of the three layers share two classes, independent of the order of summands. The tied table is a separate group. Random instances are numbered
// per class.
// CHECK: model f64, 8 units, 3 blocks of 2 from unit 1
// CHECK: unit 0 'embedding' class 0 parameters [{{.*}}] inputs [0] in [] out [0] instances from 0
// CHECK: unit 1 'block 0 attention' class 1 {{.*}} inputs [] in [0] out [1] instances from 1
// CHECK: unit 2 'block 0 mlp' class 2 {{.*}} in [1] out [2] instances from 3 {{.*}} W, deferred {{[0-9]+}} bytes, again {{[0-9.e+]+}} a row
// CHECK: unit 3 'block 1 attention' class 1
// CHECK: unit 4 'block 1 mlp' class 2
// CHECK: unit 5 'block 2 attention' class 1
// CHECK: unit 6 'block 2 mlp' class 2
// CHECK: unit 7 'head' class 3 parameters [{{.*}}] inputs [1] in [6] out [] loss [0] instances from 10
// CHECK: value 1 'h.0.add_1' f64 [4x8] 256 bytes a row from unit 1 to [2]
// CHECK: group 0 'embedding' f64 64 elements, units [0]
// CHECK: group 1 'embedding + head' f64 128 elements, units [0 7]
// CHECK-NEXT: parameter 0 'wte.weight' [11x8] at 0 rule decay
// CHECK: group 2 'block 0 attention' f64 512 elements, units [1]
// CHECK-NEXT: 'h.0.attn.c_attn.weight' [24x8] at 0 rule decay
// CHECK-NEXT: 'h.0.attn.c_proj.weight' [8x8] at 192 rule decay
// CHECK-NEXT: 'h.0.ln_1.weight' [8] at 256
// CHECK: input 0 'input_ids' i64 [4] role ids in [0, 11), units [0]
// CHECK: input 1 'labels' i64 [4] role labels in [0, 11) or -100, units [7]
// CHECK: loss 0 'loss' factor 1/n0
// CHECK: count n0 sum of labels of 'labels' other than -100

// CHECK-LABEL: zorse.class @embedding {
// CHECK:         func.func @forward(
// CHECK:         func.func @backward(
// The embedding has no input gradients, so it has no functions for a split backward.
// CHECK-NOT:     func.func
// CHECK-LABEL: zorse.class @attention {
// CHECK:         func.func @forward(
// CHECK-NOT:     zorse.attention {{.*}}rng_id =
// CHECK:         zorse.dropout {{.*}}rng_id = 1 : i64
// CHECK:         func.func @backward(
// CHECK:         func.func @backward_inputs(
// CHECK:         zorse.attention_grad
// CHECK:         func.func @backward_weights(
// CHECK-NOT:     zorse.attention_grad
// CHECK:         zorse.matmul_grad_weight
// CHECK-LABEL: zorse.class @mlp {
// CHECK:         func.func @forward(
// CHECK:         zorse.dropout {{.*}}rng_id = 0 : i64
// CHECK:         func.func @backward(
// CHECK:         func.func @backward_inputs(
// CHECK:         func.func @backward_weights(
// CHECK-LABEL: zorse.class @head {
// CHECK:         func.func @forward(
// CHECK:         func.func @recompute(
// CHECK:         func.func @backward(
// CHECK:         func.func @backward_inputs(
// CHECK:         func.func @backward_weights(
// CHECK-LABEL: func.func @counts
// CHECK:         zorse.reduce sum
// CHECK-LABEL: func.func @update.decay
// CHECK:         arith.constant dense<1.000000e-01> : tensor<f64>
// CHECK:         math.sqrt {{.*}} : tensor<?xf64>
// CHECK-LABEL: func.func @update.plain
// CHECK-NOT:     arith.constant dense<1.000000e-01> : tensor<f64>
// CHECK:         math.sqrt {{.*}} : tensor<?xf64>
// CHECK-NOT:   func.func

module {
  func.func @model(%input_ids: tensor<?x4xi64> {zorse.input = "input_ids"} loc("input_ids"),
      %labels: tensor<?x4xi64> {zorse.input = "labels"} loc("labels"),
      %p2: tensor<11x8xf64> {zorse.parameter = "wte.weight", zorse.trainable = true} loc("wte.weight"),
      %p3: tensor<4x8xf64> {zorse.parameter = "wpe.weight", zorse.trainable = true} loc("wpe.weight"),
      %p4: tensor<8xf64> {zorse.parameter = "h.0.ln_1.weight", zorse.trainable = true} loc("h.0.ln_1.weight"),
      %p5: tensor<8xf64> {zorse.parameter = "h.0.ln_1.bias", zorse.trainable = true} loc("h.0.ln_1.bias"),
      %p6: tensor<24x8xf64> {zorse.parameter = "h.0.attn.c_attn.weight", zorse.trainable = true} loc("h.0.attn.c_attn.weight"),
      %p7: tensor<24xf64> {zorse.parameter = "h.0.attn.c_attn.bias", zorse.trainable = true} loc("h.0.attn.c_attn.bias"),
      %p8: tensor<8x8xf64> {zorse.parameter = "h.0.attn.c_proj.weight", zorse.trainable = true} loc("h.0.attn.c_proj.weight"),
      %p9: tensor<8xf64> {zorse.parameter = "h.0.attn.c_proj.bias", zorse.trainable = true} loc("h.0.attn.c_proj.bias"),
      %p10: tensor<8xf64> {zorse.parameter = "h.0.ln_2.weight", zorse.trainable = true} loc("h.0.ln_2.weight"),
      %p11: tensor<8xf64> {zorse.parameter = "h.0.ln_2.bias", zorse.trainable = true} loc("h.0.ln_2.bias"),
      %p12: tensor<32x8xf64> {zorse.parameter = "h.0.mlp.c_fc.weight", zorse.trainable = true} loc("h.0.mlp.c_fc.weight"),
      %p13: tensor<32xf64> {zorse.parameter = "h.0.mlp.c_fc.bias", zorse.trainable = true} loc("h.0.mlp.c_fc.bias"),
      %p14: tensor<8x32xf64> {zorse.parameter = "h.0.mlp.c_proj.weight", zorse.trainable = true} loc("h.0.mlp.c_proj.weight"),
      %p15: tensor<8xf64> {zorse.parameter = "h.0.mlp.c_proj.bias", zorse.trainable = true} loc("h.0.mlp.c_proj.bias"),
      %p16: tensor<8xf64> {zorse.parameter = "h.1.ln_1.weight", zorse.trainable = true} loc("h.1.ln_1.weight"),
      %p17: tensor<8xf64> {zorse.parameter = "h.1.ln_1.bias", zorse.trainable = true} loc("h.1.ln_1.bias"),
      %p18: tensor<24x8xf64> {zorse.parameter = "h.1.attn.c_attn.weight", zorse.trainable = true} loc("h.1.attn.c_attn.weight"),
      %p19: tensor<24xf64> {zorse.parameter = "h.1.attn.c_attn.bias", zorse.trainable = true} loc("h.1.attn.c_attn.bias"),
      %p20: tensor<8x8xf64> {zorse.parameter = "h.1.attn.c_proj.weight", zorse.trainable = true} loc("h.1.attn.c_proj.weight"),
      %p21: tensor<8xf64> {zorse.parameter = "h.1.attn.c_proj.bias", zorse.trainable = true} loc("h.1.attn.c_proj.bias"),
      %p22: tensor<8xf64> {zorse.parameter = "h.1.ln_2.weight", zorse.trainable = true} loc("h.1.ln_2.weight"),
      %p23: tensor<8xf64> {zorse.parameter = "h.1.ln_2.bias", zorse.trainable = true} loc("h.1.ln_2.bias"),
      %p24: tensor<32x8xf64> {zorse.parameter = "h.1.mlp.c_fc.weight", zorse.trainable = true} loc("h.1.mlp.c_fc.weight"),
      %p25: tensor<32xf64> {zorse.parameter = "h.1.mlp.c_fc.bias", zorse.trainable = true} loc("h.1.mlp.c_fc.bias"),
      %p26: tensor<8x32xf64> {zorse.parameter = "h.1.mlp.c_proj.weight", zorse.trainable = true} loc("h.1.mlp.c_proj.weight"),
      %p27: tensor<8xf64> {zorse.parameter = "h.1.mlp.c_proj.bias", zorse.trainable = true} loc("h.1.mlp.c_proj.bias"),
      %p28: tensor<8xf64> {zorse.parameter = "h.2.ln_1.weight", zorse.trainable = true} loc("h.2.ln_1.weight"),
      %p29: tensor<8xf64> {zorse.parameter = "h.2.ln_1.bias", zorse.trainable = true} loc("h.2.ln_1.bias"),
      %p30: tensor<24x8xf64> {zorse.parameter = "h.2.attn.c_attn.weight", zorse.trainable = true} loc("h.2.attn.c_attn.weight"),
      %p31: tensor<24xf64> {zorse.parameter = "h.2.attn.c_attn.bias", zorse.trainable = true} loc("h.2.attn.c_attn.bias"),
      %p32: tensor<8x8xf64> {zorse.parameter = "h.2.attn.c_proj.weight", zorse.trainable = true} loc("h.2.attn.c_proj.weight"),
      %p33: tensor<8xf64> {zorse.parameter = "h.2.attn.c_proj.bias", zorse.trainable = true} loc("h.2.attn.c_proj.bias"),
      %p34: tensor<8xf64> {zorse.parameter = "h.2.ln_2.weight", zorse.trainable = true} loc("h.2.ln_2.weight"),
      %p35: tensor<8xf64> {zorse.parameter = "h.2.ln_2.bias", zorse.trainable = true} loc("h.2.ln_2.bias"),
      %p36: tensor<32x8xf64> {zorse.parameter = "h.2.mlp.c_fc.weight", zorse.trainable = true} loc("h.2.mlp.c_fc.weight"),
      %p37: tensor<32xf64> {zorse.parameter = "h.2.mlp.c_fc.bias", zorse.trainable = true} loc("h.2.mlp.c_fc.bias"),
      %p38: tensor<8x32xf64> {zorse.parameter = "h.2.mlp.c_proj.weight", zorse.trainable = true} loc("h.2.mlp.c_proj.weight"),
      %p39: tensor<8xf64> {zorse.parameter = "h.2.mlp.c_proj.bias", zorse.trainable = true} loc("h.2.mlp.c_proj.bias"),
      %p40: tensor<8xf64> {zorse.parameter = "ln_f.weight", zorse.trainable = true} loc("ln_f.weight"),
      %p41: tensor<8xf64> {zorse.parameter = "ln_f.bias", zorse.trainable = true} loc("ln_f.bias"))
      -> (tensor<?xf64> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/n0"}, tensor<?xf64> {zorse.role = "count", zorse.count = 0 : i64, zorse.reduce = "sum"}) {
    %v1 = zorse.gather %p2, %input_ids : tensor<11x8xf64>, tensor<?x4xi64> -> tensor<?x4x8xf64> loc("wte")
    %v2 = zorse.broadcast %p3 dims [1, 2] : tensor<4x8xf64> -> tensor<?x4x8xf64>
    %v3 = arith.addf %v1, %v2 : tensor<?x4x8xf64> loc("embed")
    %v4 = zorse.dropout %v3 {probability = 0.1 : f64, rng_id = 7 : i64} : tensor<?x4x8xf64>
    %v5 = zorse.layer_norm %v4 weight %p4 bias %p5 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.0.ln_1")
    %v6 = zorse.matmul %v5, %p6 {transpose_b} : tensor<?x4x8xf64>, tensor<24x8xf64> -> tensor<?x4x24xf64> loc("h.0.attn.c_attn/MatMul")
    %v7 = zorse.broadcast %p7 dims [2] : tensor<24xf64> -> tensor<?x4x24xf64>
    %v8 = arith.addf %v6, %v7 : tensor<?x4x24xf64> loc("h.0.attn.c_attn/Add")
    %v9 = zorse.slice %v8 [0, 0, 0] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v10 = zorse.reshape %v9 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v11 = zorse.slice %v8 [0, 0, 8] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v12 = zorse.reshape %v11 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v13 = zorse.slice %v8 [0, 0, 16] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v14 = zorse.reshape %v13 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v15 = zorse.attention %v10, %v12, %v14 {causal, scale = 0.5 : f64, dropout = 0.1 : f64, rng_id = 100 : i64} : (tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>) -> tensor<?x4x2x4xf64> loc("h.0.attn")
    %v16 = zorse.reshape %v15 : tensor<?x4x2x4xf64> -> tensor<?x4x8xf64>
    %v17 = zorse.matmul %v16, %p8 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("h.0.attn.c_proj/MatMul")
    %v18 = zorse.broadcast %p9 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v19 = arith.addf %v17, %v18 : tensor<?x4x8xf64> loc("h.0.attn.c_proj/Add")
    %v20 = zorse.dropout %v19 {probability = 0.1 : f64, rng_id = 8 : i64} : tensor<?x4x8xf64>
    %v21 = arith.addf %v4, %v20 : tensor<?x4x8xf64> loc("h.0.add_1")
    %v22 = zorse.layer_norm %v21 weight %p10 bias %p11 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.0.ln_2")
    %v23 = zorse.matmul %v22, %p12 {transpose_b} : tensor<?x4x8xf64>, tensor<32x8xf64> -> tensor<?x4x32xf64> loc("h.0.mlp.c_fc/MatMul")
    %v24 = zorse.broadcast %p13 dims [2] : tensor<32xf64> -> tensor<?x4x32xf64>
    %v25 = arith.addf %v23, %v24 : tensor<?x4x32xf64> loc("h.0.mlp.c_fc/Add")
    %v26 = zorse.gelu %v25 {approximate} : tensor<?x4x32xf64>
    %v27 = zorse.matmul %v26, %p14 {transpose_b} : tensor<?x4x32xf64>, tensor<8x32xf64> -> tensor<?x4x8xf64> loc("h.0.mlp.c_proj/MatMul")
    %v28 = zorse.broadcast %p15 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v29 = arith.addf %v27, %v28 : tensor<?x4x8xf64> loc("h.0.mlp.c_proj/Add")
    %v30 = zorse.dropout %v29 {probability = 0.1 : f64, rng_id = 9 : i64} : tensor<?x4x8xf64>
    %v31 = arith.addf %v21, %v30 : tensor<?x4x8xf64> loc("h.0.add_2")
    %v32 = zorse.layer_norm %v31 weight %p16 bias %p17 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.1.ln_1")
    %v33 = zorse.matmul %v32, %p18 {transpose_b} : tensor<?x4x8xf64>, tensor<24x8xf64> -> tensor<?x4x24xf64> loc("h.1.attn.c_attn/MatMul")
    %v34 = zorse.broadcast %p19 dims [2] : tensor<24xf64> -> tensor<?x4x24xf64>
    %v35 = arith.addf %v33, %v34 : tensor<?x4x24xf64> loc("h.1.attn.c_attn/Add")
    %v36 = zorse.slice %v35 [0, 0, 0] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v37 = zorse.reshape %v36 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v38 = zorse.slice %v35 [0, 0, 8] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v39 = zorse.reshape %v38 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v40 = zorse.slice %v35 [0, 0, 16] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v41 = zorse.reshape %v40 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v42 = zorse.attention %v37, %v39, %v41 {causal, scale = 0.5 : f64, dropout = 0.1 : f64, rng_id = 99 : i64} : (tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>) -> tensor<?x4x2x4xf64> loc("h.1.attn")
    %v43 = zorse.reshape %v42 : tensor<?x4x2x4xf64> -> tensor<?x4x8xf64>
    %v44 = zorse.matmul %v43, %p20 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("h.1.attn.c_proj/MatMul")
    %v45 = zorse.broadcast %p21 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v46 = arith.addf %v44, %v45 : tensor<?x4x8xf64> loc("h.1.attn.c_proj/Add")
    %v47 = zorse.dropout %v46 {probability = 0.1 : f64, rng_id = 10 : i64} : tensor<?x4x8xf64>
    %v48 = arith.addf %v47, %v31 : tensor<?x4x8xf64> loc("h.1.add_1")
    %v49 = zorse.layer_norm %v48 weight %p22 bias %p23 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.1.ln_2")
    %v50 = zorse.matmul %v49, %p24 {transpose_b} : tensor<?x4x8xf64>, tensor<32x8xf64> -> tensor<?x4x32xf64> loc("h.1.mlp.c_fc/MatMul")
    %v51 = zorse.broadcast %p25 dims [2] : tensor<32xf64> -> tensor<?x4x32xf64>
    %v52 = arith.addf %v50, %v51 : tensor<?x4x32xf64> loc("h.1.mlp.c_fc/Add")
    %v53 = zorse.gelu %v52 {approximate} : tensor<?x4x32xf64>
    %v54 = zorse.matmul %v53, %p26 {transpose_b} : tensor<?x4x32xf64>, tensor<8x32xf64> -> tensor<?x4x8xf64> loc("h.1.mlp.c_proj/MatMul")
    %v55 = zorse.broadcast %p27 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v56 = arith.addf %v54, %v55 : tensor<?x4x8xf64> loc("h.1.mlp.c_proj/Add")
    %v57 = zorse.dropout %v56 {probability = 0.1 : f64, rng_id = 11 : i64} : tensor<?x4x8xf64>
    %v58 = arith.addf %v48, %v57 : tensor<?x4x8xf64> loc("h.1.add_2")
    %v59 = zorse.layer_norm %v58 weight %p28 bias %p29 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.2.ln_1")
    %v60 = zorse.matmul %v59, %p30 {transpose_b} : tensor<?x4x8xf64>, tensor<24x8xf64> -> tensor<?x4x24xf64> loc("h.2.attn.c_attn/MatMul")
    %v61 = zorse.broadcast %p31 dims [2] : tensor<24xf64> -> tensor<?x4x24xf64>
    %v62 = arith.addf %v60, %v61 : tensor<?x4x24xf64> loc("h.2.attn.c_attn/Add")
    %v63 = zorse.slice %v62 [0, 0, 0] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v64 = zorse.reshape %v63 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v65 = zorse.slice %v62 [0, 0, 8] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v66 = zorse.reshape %v65 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v67 = zorse.slice %v62 [0, 0, 16] [?, 4, 8] [1, 1, 1] : tensor<?x4x24xf64> -> tensor<?x4x8xf64>
    %v68 = zorse.reshape %v67 : tensor<?x4x8xf64> -> tensor<?x4x2x4xf64>
    %v69 = zorse.attention %v64, %v66, %v68 {causal, scale = 0.5 : f64, dropout = 0.1 : f64, rng_id = 98 : i64} : (tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>, tensor<?x4x2x4xf64>) -> tensor<?x4x2x4xf64> loc("h.2.attn")
    %v70 = zorse.reshape %v69 : tensor<?x4x2x4xf64> -> tensor<?x4x8xf64>
    %v71 = zorse.matmul %v70, %p32 {transpose_b} : tensor<?x4x8xf64>, tensor<8x8xf64> -> tensor<?x4x8xf64> loc("h.2.attn.c_proj/MatMul")
    %v72 = zorse.broadcast %p33 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v73 = arith.addf %v71, %v72 : tensor<?x4x8xf64> loc("h.2.attn.c_proj/Add")
    %v74 = zorse.dropout %v73 {probability = 0.1 : f64, rng_id = 12 : i64} : tensor<?x4x8xf64>
    %v75 = arith.addf %v58, %v74 : tensor<?x4x8xf64> loc("h.2.add_1")
    %v76 = zorse.layer_norm %v75 weight %p34 bias %p35 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("h.2.ln_2")
    %v77 = zorse.matmul %v76, %p36 {transpose_b} : tensor<?x4x8xf64>, tensor<32x8xf64> -> tensor<?x4x32xf64> loc("h.2.mlp.c_fc/MatMul")
    %v78 = zorse.broadcast %p37 dims [2] : tensor<32xf64> -> tensor<?x4x32xf64>
    %v79 = arith.addf %v77, %v78 : tensor<?x4x32xf64> loc("h.2.mlp.c_fc/Add")
    %v80 = zorse.gelu %v79 {approximate} : tensor<?x4x32xf64>
    %v81 = zorse.matmul %v80, %p38 {transpose_b} : tensor<?x4x32xf64>, tensor<8x32xf64> -> tensor<?x4x8xf64> loc("h.2.mlp.c_proj/MatMul")
    %v82 = zorse.broadcast %p39 dims [2] : tensor<8xf64> -> tensor<?x4x8xf64>
    %v83 = arith.addf %v81, %v82 : tensor<?x4x8xf64> loc("h.2.mlp.c_proj/Add")
    %v84 = zorse.dropout %v83 {probability = 0.1 : f64, rng_id = 13 : i64} : tensor<?x4x8xf64>
    %v85 = arith.addf %v75, %v84 : tensor<?x4x8xf64> loc("h.2.add_2")
    %v86 = zorse.layer_norm %v85 weight %p40 bias %p41 {epsilon = 1.0e-5 : f64} : (tensor<?x4x8xf64>, tensor<8xf64>, tensor<8xf64>) -> tensor<?x4x8xf64> loc("ln_f")
    %v87 = zorse.matmul %v86, %p2 {transpose_b} : tensor<?x4x8xf64>, tensor<11x8xf64> -> tensor<?x4x11xf64> loc("lm_head")
    %v88 = zorse.cross_entropy %v87, %labels {ignore_index = -100 : i64} : (tensor<?x4x11xf64>, tensor<?x4xi64>) -> tensor<?x4xf64> loc("loss")
    %v89 = zorse.reduce sum %v88 dims [1] : tensor<?x4xf64> -> tensor<?xf64> loc("loss")
    %v90 = arith.constant dense<-100> : tensor<i64>
    %v91 = zorse.broadcast %v90 dims [] : tensor<i64> -> tensor<?x4xi64>
    %v92 = arith.cmpi ne, %labels, %v91 : tensor<?x4xi64>
    %v93 = arith.uitofp %v92 : tensor<?x4xi1> to tensor<?x4xf64>
    %v94 = zorse.reduce sum %v93 dims [1] : tensor<?x4xf64> -> tensor<?xf64>
    return %v89, %v94 : tensor<?xf64>, tensor<?xf64>
  }
}
