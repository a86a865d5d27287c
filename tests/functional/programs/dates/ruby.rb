require "date"

day = Date.new(2024, 2, 29)
puts (day - Date.new(2000, 1, 1)).to_i
puts day.strftime("%A")
puts day + 100
puts [1900, 2000, 2023, 2024].map { |year| "#{year} #{Date.leap?(year) ? "yes" : "no"}" }.join(" ")
