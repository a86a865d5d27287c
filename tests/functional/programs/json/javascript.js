const data = JSON.parse('{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}')
console.log(data.name, data.values.length, data.ratio)
console.log(JSON.stringify({ name: data.name, tags: [...data.tags, 'z'], total: data.values.reduce((a, b) => a + b) }))
