# Numbers are exact up to 2^53: the product is kept as digits, the smallest first.
BEGIN {
  digits[length_of = 1] = 1
  for (n = 2; n <= 30; n++) {
    carry = 0
    for (i = 1; i <= length_of || carry; i++) {
      carry += digits[i] * n
      digits[i] = carry % 10
      carry = int(carry / 10)
    }
    if (i - 1 > length_of) length_of = i - 1
  }
  for (i = length_of; i > 0; i--) {
    product = product digits[i]
    sum += digits[i]
  }
  print product
  print sum
}
