function* primesBelow(limit) {
  const crossed = new Uint8Array(limit)
  for (let n = 2; n < limit; n++) {
    if (crossed[n]) continue
    yield n
    for (let m = n * n; m < limit; m += n) crossed[m] = 1
  }
}

console.log([...primesBelow(50)].join(' '))
console.log([...primesBelow(10000)].length)
