rows = [["apple", 1.5, 10], ["pear", 0.25, 4], ["watermelon", 12, 1]]
rows.each { |row| puts format("%-12s|%8.2f|%4d", *row) }
puts format("%-12s %7.2f", "total", rows.sum { |_, price, count| price * count })
puts format("%07d %x", 255, 255)
