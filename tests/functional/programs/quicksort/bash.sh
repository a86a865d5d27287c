quicksort() {
  (($# == 0)) && return
  local pivot=$1 below=() above=() x
  shift
  for x; do
    if ((x < pivot)); then below+=("$x"); else above+=("$x"); fi
  done
  quicksort "${below[@]}"
  sorted+=("$pivot")
  quicksort "${above[@]}"
}

sorted=()
quicksort 33 -4 15 0 99 7 7 -21 58 2 41 13
echo "${sorted[*]}"
