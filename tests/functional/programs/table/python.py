rows = [("apple", 1.5, 10), ("pear", 0.25, 4), ("watermelon", 12, 1)]
for name, price, count in rows:
    print(f"{name:<12}|{price:8.2f}|{count:4d}")
print("%-12s %7.2f" % ("total", sum(price * count for _, price, count in rows)))
print(f"{255:07d} {255:x}")
