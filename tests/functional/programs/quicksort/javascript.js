const quicksort = ([pivot, ...rest]) =>
  pivot === undefined ? [] : [...quicksort(rest.filter((x) => x < pivot)), pivot, ...quicksort(rest.filter((x) => x >= pivot))]

console.log(quicksort([33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13]).join(' '))
