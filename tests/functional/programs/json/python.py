import json

data = json.loads('{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}')
print(data["name"], len(data["values"]), data["ratio"])
out = {"name": data["name"], "tags": data["tags"] + ["z"], "total": sum(data["values"])}
print(json.dumps(out, ensure_ascii=False, separators=(",", ":")))
