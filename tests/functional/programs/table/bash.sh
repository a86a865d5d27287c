total=0
while read -r name price count; do
  printf '%-12s|%8.2f|%4d\n' "$name" "$price" "$count"
  cents=$(printf '%.2f' "$price")
  total=$((total + 10#${cents/./} * count))
done <<'ROWS'
apple 1.5 10
pear 0.25 4
watermelon 12 1
ROWS
printf '%-12s %7s\n' total "$((total / 100)).$(printf %02d $((total % 100)))"
printf '%07d %x\n' 255 255
