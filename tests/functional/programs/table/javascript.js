const rows = [['apple', 1.5, 10], ['pear', 0.25, 4], ['watermelon', 12, 1]]
for (const [name, price, count] of rows) console.log(`${name.padEnd(12)}|${price.toFixed(2).padStart(8)}|${String(count).padStart(4)}`)
const total = rows.reduce((sum, [, price, count]) => sum + price * count, 0)
console.log(`${'total'.padEnd(12)} ${total.toFixed(2).padStart(7)}`)
console.log(String(255).padStart(7, '0'), (255).toString(16))
