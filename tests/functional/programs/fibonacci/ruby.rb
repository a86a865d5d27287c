fibonacci = Hash.new { |known, n| known[n] = n < 2 ? n : known[n - 1] + known[n - 2] }
puts (0..10).map { |n| fibonacci[n] }.join(" ")
puts fibonacci[70]
