function* primesBelow(limit: number): Generator<number> {
  const crossed: boolean[] = new Array(limit).fill(false)
  for (let n = 2; n < limit; n++) {
    if (crossed[n]) continue
    yield n
    for (let m = n * n; m < limit; m += n) crossed[m] = true
  }
}

console.log([...primesBelow(50)].join(' '))
console.log([...primesBelow(10000)].length)
