digits=(1)
for ((n = 2; n <= 30; n++)); do
  carry=0
  for i in "${!digits[@]}"; do
    ((carry += digits[i] * n, digits[i] = carry % 10, carry /= 10)) || true
  done
  while ((carry)); do
    digits+=($((carry % 10)))
    ((carry /= 10)) || true
  done
done
text='' sum=0
for digit in "${digits[@]}"; do
  text=$digit$text
  ((sum += digit)) || true
done
echo "$text"
echo "$sum"
