<?php
$digits = [1];
for ($n = 2; $n <= 30; $n++) {
    $carry = 0;
    foreach ($digits as &$digit) {
        $carry += $digit * $n;
        $digit = $carry % 10;
        $carry = intdiv($carry, 10);
    }
    unset($digit);
    for (; $carry > 0; $carry = intdiv($carry, 10)) {
        $digits[] = $carry % 10;
    }
}
echo implode(array_reverse($digits)), "\n", array_sum($digits), "\n";
