local function primes_below(limit)
  local crossed, primes = {}, {}
  for n = 2, limit - 1 do
    if not crossed[n] then
      primes[#primes + 1] = n
      for m = n * n, limit - 1, n do crossed[m] = true end
    end
  end
  return primes
end

print(table.concat(primes_below(50), " "))
print(#primes_below(10000))
