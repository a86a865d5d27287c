local counts, words = {}, {}
for word in ("the cat and the dog and the bird"):gmatch("%a+") do
  if not counts[word] then words[#words + 1] = word end
  counts[word] = (counts[word] or 0) + 1
end
table.sort(words, function(a, b)
  if counts[a] ~= counts[b] then return counts[a] > counts[b] end
  return a < b
end)
for _, word in ipairs(words) do print(word .. " " .. counts[word]) end
