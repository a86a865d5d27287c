declare -A count
counter() { count[$1]=0; eval "$1() { value=\$((count[$1] += $2)); }"; }
rectangle() { echo "${3:-rectangle} $(($1 * $2))"; }
square() { rectangle "$1" "$1" square; }

counter ones 1
counter tens 10
seen=()
for each in ones ones tens ones tens; do
  "$each"
  seen+=("$value")
done
echo "${seen[@]}"
square 3
rectangle 2 5
