product = (1..30).inject(:*)
puts product
puts product.digits.sum
