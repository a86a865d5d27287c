from math import factorial

print(factorial(30))
print(sum(map(int, str(factorial(30)))))
