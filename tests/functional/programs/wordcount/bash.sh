declare -A counts
for word in the cat and the dog and the bird; do ((counts[$word] += 1)); done
for word in "${!counts[@]}"; do echo "$word ${counts[$word]}"; done | LC_ALL=C sort -k2,2nr -k1,1
