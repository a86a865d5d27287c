const DAY = 86_400_000
const day = new Date(Date.UTC(2024, 1, 29))
const isLeap = (year) => new Date(Date.UTC(year, 1, 29)).getUTCDate() === 29
console.log((day - Date.UTC(2000, 0, 1)) / DAY)
console.log(day.toLocaleDateString('en-US', { weekday: 'long', timeZone: 'UTC' }))
console.log(new Date(day.getTime() + 100 * DAY).toISOString().slice(0, 10))
console.log([1900, 2000, 2023, 2024].map((year) => `${year} ${isLeap(year) ? 'yes' : 'no'}`).join(' '))
