interface Row { name: string; price: number; count: number }
const rows: Row[] = [{ name: 'apple', price: 1.5, count: 10 }, { name: 'pear', price: 0.25, count: 4 }, { name: 'watermelon', price: 12, count: 1 }]
for (const { name, price, count } of rows) console.log(`${name.padEnd(12)}|${price.toFixed(2).padStart(8)}|${String(count).padStart(4)}`)
const total: number = rows.reduce((sum, row) => sum + row.price * row.count, 0)
console.log(`${'total'.padEnd(12)} ${total.toFixed(2).padStart(7)}`)
console.log(String(255).padStart(7, '0'), (255).toString(16))
