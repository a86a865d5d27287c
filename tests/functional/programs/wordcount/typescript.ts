type Count = [word: string, count: number]
const counts = new Map<string, number>()
for (const word of 'the cat and the dog and the bird'.split(' ')) counts.set(word, (counts.get(word) ?? 0) + 1)
const order = ([a, m]: Count, [b, n]: Count): number => n - m || a.localeCompare(b)
for (const [word, count] of ([...counts] satisfies Count[]).sort(order)) console.log(word, count)
