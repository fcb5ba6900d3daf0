// RUN: zorse-opt %s --zorse-report-ops -verify-diagnostics

func.func @ops(%x: tensor<?x64x768xf32>, %w: tensor<3072x768xf32>, %q: tensor<?x64x12x64xf32>, %k: tensor<?x64x4x64xf32>, %ids: tensor<?x64xi64>) {
  // expected-remark @below {{([i, j, l], [k, l]) -> ([i, j, k]) parallel: i j k sum: l; flops 0 + 301989888 per row, bytes 9437184 + 983040 per row}}
  %0 = zorse.matmul %x, %w {transpose_b} : tensor<?x64x768xf32>, tensor<3072x768xf32> -> tensor<?x64x3072xf32>
  // expected-remark @below {{([i, j, kl]) -> ([i, j, k, l]) parallel: i j k l; flops 0 + 0 per row, bytes 0 + 0 per row}}
  %1 = zorse.reshape %x : tensor<?x64x768xf32> -> tensor<?x64x12x64xf32>
  // expected-remark @below {{([i, j, k], [i, j, l]) -> ([k, l]) parallel: k l sum: i j}}
  %2 = zorse.matmul_grad_weight %x, %0 : tensor<?x64x768xf32>, tensor<?x64x3072xf32> -> tensor<768x3072xf32>
  // expected-remark @below {{([i, j, k]) -> ([i, j, k]) parallel: i j indivisible: k}}
  %3 = zorse.softmax %x : tensor<?x64x768xf32>
  // expected-remark @below {{([i, j, lo, m], [i, k, l, m], [i, k, l, n]) -> ([i, j, lo, n]) parallel: i j l n o indivisible: k m offset: j, k; flops 0 + 6639360 per row}}
  %4 = zorse.attention %q, %k, %k {causal, scale = 0.125 : f64} : (tensor<?x64x12x64xf32>, tensor<?x64x4x64xf32>, tensor<?x64x4x64xf32>) -> tensor<?x64x12x64xf32>
  // expected-remark @below {{([i, l], [j, k]) -> ([j, k, l]) parallel: j k l sum: i offset: i in operand 1}}
  %5 = zorse.gather %w, %ids : tensor<3072x768xf32>, tensor<?x64xi64> -> tensor<?x64x768xf32>
  // expected-remark @below {{([i, j, k], [i, j, k]) -> ([i, j, k]) parallel: i j k; flops 0 + 49152 per row, bytes 0 + 589824 per row}}
  %6 = arith.addf %x, %5 : tensor<?x64x768xf32>
  // expected-remark @below {{([i, j, _|k|_]) -> ([i, j, k]) parallel: i j k}}
  %7 = zorse.slice %x [0, 0, 100] [?, 64, 300] [1, 1, 1] : tensor<?x64x768xf32> -> tensor<?x64x300xf32>
  // expected-remark @below {{([i, j, k], [i, j, l]) -> ([i, j, k|l]) parallel: i j k l}}
  %8 = zorse.concat %x, %7 {dim = 2 : i64} : (tensor<?x64x768xf32>, tensor<?x64x300xf32>) -> tensor<?x64x1068xf32>
  // expected-remark @below {{([i, j, k], [i, j]) -> ([i, j], [i, j, _]) parallel: i j log-sum-exp: k offset: k in operand 1}}
  %9, %10 = zorse.cross_entropy %8, %ids : (tensor<?x64x1068xf32>, tensor<?x64xi64>) -> (tensor<?x64xf32>, tensor<?x64x2xf32>)
  return
}
