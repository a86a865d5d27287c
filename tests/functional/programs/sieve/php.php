<?php
function primes_below(int $limit): Generator
{
    $crossed = array_fill(0, $limit, false);
    for ($n = 2; $n < $limit; $n++) {
        if ($crossed[$n]) {
            continue;
        }
        yield $n;
        for ($m = $n * $n; $m < $limit; $m += $n) {
            $crossed[$m] = true;
        }
    }
}

echo implode(' ', iterator_to_array(primes_below(50), false)), "\n", iterator_count(primes_below(10000)), "\n";
