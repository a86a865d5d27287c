export TZ=UTC LC_ALL=C
echo $((($(date -d 2024-02-29 +%s) - $(date -d 2000-01-01 +%s)) / 86400))
date -d 2024-02-29 +%A
date -d '2024-02-29 + 100 days' +%F
words=()
for year in 1900 2000 2023 2024; do
  if ((year % 4 == 0 && year % 100 != 0 || year % 400 == 0)); then words+=("$year yes"); else words+=("$year no"); fi
done
echo "${words[*]}"
