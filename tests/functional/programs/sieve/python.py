def primes_below(limit):
    is_prime = bytearray([1]) * limit
    is_prime[:2] = b"\0\0"
    for n in range(2, int(limit**0.5) + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = bytes(len(range(n * n, limit, n)))
    return [n for n in range(limit) if is_prime[n]]


print(*primes_below(50))
print(len(primes_below(10000)))
