<?php
$rows = [['apple', 1.5, 10], ['pear', 0.25, 4], ['watermelon', 12, 1]];
$total = 0;
foreach ($rows as [$name, $price, $count]) {
    printf("%-12s|%8.2f|%4d\n", $name, $price, $count);
    $total += $price * $count;
}
printf("%-12s %7.2f\n%07d %x\n", 'total', $total, 255, 255);
