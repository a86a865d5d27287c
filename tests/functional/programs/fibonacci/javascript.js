const known = new Map([[0, 0], [1, 1]])
function fibonacci(n) {
  if (!known.has(n)) known.set(n, fibonacci(n - 1) + fibonacci(n - 2))
  return known.get(n)
}

console.log(Array.from({ length: 11 }, (_, n) => fibonacci(n)).join(' '))
console.log(fibonacci(70))
