<?php
$day = new DateTimeImmutable('2024-02-29', new DateTimeZone('UTC'));
echo $day->diff(new DateTimeImmutable('2000-01-01', new DateTimeZone('UTC')))->days, "\n";
echo $day->format('l'), "\n";
echo $day->modify('+100 days')->format('Y-m-d'), "\n";
$show = fn ($year) => "$year " . (checkdate(2, 29, $year) ? 'yes' : 'no');
echo implode(' ', array_map($show, [1900, 2000, 2023, 2024])), "\n";
