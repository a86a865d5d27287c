<?php
function quicksort(array $items): array
{
    if (count($items) < 2) {
        return $items;
    }
    $pivot = array_shift($items);
    $below = array_filter($items, fn ($x) => $x < $pivot);
    $above = array_filter($items, fn ($x) => $x >= $pivot);
    return [...quicksort(array_values($below)), $pivot, ...quicksort(array_values($above))];
}

echo implode(' ', quicksort([33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13])), "\n";
