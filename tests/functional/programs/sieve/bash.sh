sieve() {
  local limit=$1 n m crossed=()
  primes=()
  for ((n = 2; n < limit; n++)); do
    [[ -n ${crossed[n]} ]] && continue
    primes+=("$n")
    for ((m = n * n; m < limit; m += n)); do crossed[m]=1; done
  done
}

sieve 50
echo "${primes[@]}"
sieve 10000
echo "${#primes[@]}"
