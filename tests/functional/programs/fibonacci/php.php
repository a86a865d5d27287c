<?php
function fibonacci(int $n): int
{
    static $known = [0, 1];
    return $known[$n] ??= fibonacci($n - 1) + fibonacci($n - 2);
}

echo implode(' ', array_map('fibonacci', range(0, 10))), "\n", fibonacci(70), "\n";
