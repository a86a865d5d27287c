<?php
$counts = array_count_values(explode(' ', 'the cat and the dog and the bird'));
uksort($counts, fn ($a, $b) => [$counts[$b], $a] <=> [$counts[$a], $b]);
foreach ($counts as $word => $count) {
    echo "$word $count\n";
}
