<?php
$data = json_decode('{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}');
echo "$data->name ", count($data->values), " $data->ratio\n";
$out = ['name' => $data->name, 'tags' => [...$data->tags, 'z'], 'total' => array_sum($data->values)];
echo json_encode($out, JSON_UNESCAPED_UNICODE), "\n";
