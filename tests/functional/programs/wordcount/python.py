from collections import Counter

counts = Counter("the cat and the dog and the bird".split())
for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
    print(word, count)
