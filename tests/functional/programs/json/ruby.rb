require "json"

data = JSON.parse('{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}')
puts "#{data["name"]} #{data["values"].size} #{data["ratio"]}"
puts JSON.generate("name" => data["name"], "tags" => data["tags"] + ["z"], "total" => data["values"].sum)
