<?php
class Rectangle
{
    protected string $name = 'rectangle';

    public function __construct(private float $width, private float $height)
    {
    }

    public function __toString(): string
    {
        return "$this->name " . $this->width * $this->height;
    }
}

final class Square extends Rectangle
{
    protected string $name = 'square';

    public function __construct(float $side)
    {
        parent::__construct($side, $side);
    }
}

function counter(int $step): Closure
{
    $count = 0;
    return function () use (&$count, $step) {
        return $count += $step;
    };
}

[$ones, $tens] = [counter(1), counter(10)];
echo implode(' ', [$ones(), $ones(), $tens(), $ones(), $tens()]), "\n";
echo new Square(3), "\n", new Rectangle(2, 5), "\n";
