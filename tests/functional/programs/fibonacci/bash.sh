declare -A known=([0]=0 [1]=1)
fibonacci() {
  if [[ -z ${known[$1]} ]]; then
    fibonacci $(($1 - 1))
    fibonacci $(($1 - 2))
    known[$1]=$((known[$(($1 - 1))] + known[$(($1 - 2))]))
  fi
}

fibonacci 70
first=()
for n in {0..10}; do first+=("${known[$n]}"); done
echo "${first[@]}"
echo "${known[70]}"
