def primes_below(limit)
  is_prime = [false, false] + [true] * (limit - 2)
  (2..Integer.sqrt(limit)).each do |n|
    (n * n).step(limit - 1, n) { |m| is_prime[m] = false } if is_prime[n]
  end
  is_prime.each_index.select { |n| is_prime[n] }
end

puts primes_below(50).join(" ")
puts primes_below(10_000).size
