func.func @model(%x: tensor<?x8xf32> {zorse.input = "x"},
                 %w1: tensor<64x8xf32> {zorse.parameter = "w1", zorse.trainable = true},
                 %w2: tensor<8x64xf32> {zorse.parameter = "w2", zorse.trainable = true},
                 %w3: tensor<64x8xf32> {zorse.parameter = "w3", zorse.trainable = true},
                 %w4: tensor<8x64xf32> {zorse.parameter = "w4", zorse.trainable = true})
    -> (tensor<?xf32> {zorse.term = 0 : i64, zorse.role = "numerator", zorse.factor = "1/(8*B)"}) {
  %h0 = zorse.matmul %x, %w1 {transpose_b} : tensor<?x8xf32>, tensor<64x8xf32> -> tensor<?x64xf32>
  %a0 = zorse.gelu %h0 : tensor<?x64xf32>
  %o0 = zorse.matmul %a0, %w2 {transpose_b} : tensor<?x64xf32>, tensor<8x64xf32> -> tensor<?x8xf32>
  %h1 = zorse.matmul %o0, %w3 {transpose_b} : tensor<?x8xf32>, tensor<64x8xf32> -> tensor<?x64xf32>
  %a1 = zorse.gelu %h1 : tensor<?x64xf32>
  %o1 = zorse.matmul %a1, %w4 {transpose_b} : tensor<?x64xf32>, tensor<8x64xf32> -> tensor<?x8xf32>
  %s = arith.mulf %o1, %o1 : tensor<?x8xf32>
  %l = zorse.reduce sum %s dims [1] : tensor<?x8xf32> -> tensor<?xf32>
  return %l : tensor<?xf32>
}
