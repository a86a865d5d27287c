function quicksort<T>(items: readonly T[]): T[] {
  if (items.length < 2) return [...items]
  const [pivot, ...rest] = items as [T, ...T[]]
  return [...quicksort(rest.filter((x) => x < pivot)), pivot, ...quicksort(rest.filter((x) => x >= pivot))]
}

console.log(quicksort<number>([33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13]).join(' '))
