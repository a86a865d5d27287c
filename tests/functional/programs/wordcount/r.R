counts <- table(strsplit("the cat and the dog and the bird", " ")[[1]])
counts <- counts[order(-counts, names(counts))]
for (word in names(counts)) cat(word, counts[[word]], "\n", sep = c(" ", "", ""))
