counts = "the cat and the dog and the bird".split.tally
counts.sort_by { |word, count| [-count, word] }.each { |word, count| puts "#{word} #{count}" }
