let product = 1n
for (let n = 2n; n <= 30n; n++) product *= n
console.log(String(product))
console.log([...String(product)].reduce((sum, digit) => sum + Number(digit), 0))
