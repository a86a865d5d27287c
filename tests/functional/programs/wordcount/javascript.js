const counts = new Map()
for (const word of 'the cat and the dog and the bird'.split(' ')) counts.set(word, (counts.get(word) ?? 0) + 1)
const order = ([a, m], [b, n]) => n - m || (a < b ? -1 : 1)
for (const [word, count] of [...counts].sort(order)) console.log(word, count)
